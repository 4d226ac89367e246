package rules_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

type dashboard struct {
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	ID            any    `json:"id"`
	Templating    struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type variable struct {
	Name       string     `json:"name"`
	Type       string     `json:"type"`
	Query      string     `json:"query"`
	Datasource datasource `json:"datasource"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  datasource
	GridPos     struct{ H, W, X, Y int } `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []target `json:"targets"`
}

type target struct {
	RefID        string `json:"refId"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
}

// theDatasource is the data source that the user chooses at the top of the dashboard.
var theDatasource = datasource{"prometheus", "${datasource}"}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) == 0 || d.Title == "" || d.SchemaVersion < 36 {
		t.Fatalf("%s has no panels, no title, or a schema that is too old", dashboardFile)
	}
	return d
}

// shown returns all panels except rows.
func (d dashboard) shown() []panel {
	return slices.DeleteFunc(slices.Clone(d.Panels), func(p panel) bool { return p.Type == "row" })
}

// plain returns a query as Grafana sends it, except that variables for values of labels stay.
func plain(query string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$__interval", "1m").Replace(query)
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

func TestPanelsAskForMetricsThatAreExported(t *testing.T) {
	list, d := readList(t), readDashboard(t)
	for _, p := range d.shown() {
		for _, target := range p.Targets {
			if err := list.check(plain(target.Expr)); err != nil {
				t.Errorf("%s: %v", p.Title, err)
			}
		}
	}
	for _, v := range d.Templating.List {
		if v.Type == "datasource" {
			continue
		}
		asked := labelValues.FindStringSubmatch(v.Query)
		if asked == nil || asked[2] != v.Name {
			t.Errorf("variable %s is %s, want the values of its label", v.Name, v.Query)
			continue
		}
		if err := list.check(asked[1]); err != nil || !slices.Contains(list.result(t, asked[1]), v.Name) {
			t.Errorf("variable %s: %s has no such label: %v", v.Name, asked[1], err)
		}
	}
}

// TestPanelsShowOnlyTheChosenSeries checks that each series is filtered by every variable that
// has the name of one of its labels.
func TestPanelsShowOnlyTheChosenSeries(t *testing.T) {
	list, d := readList(t), readDashboard(t)
	selector := regexp.MustCompile(`\b((?:informer|workqueue)_\w+)(\{[^}]*\})?`)
	for _, p := range d.shown() {
		for _, target := range p.Targets {
			for _, found := range selector.FindAllStringSubmatch(target.Expr, -1) {
				_, has, _ := list.find(found[1])
				for _, v := range d.Templating.List {
					if slices.Contains(has, v.Name) && !strings.Contains(found[2], fmt.Sprintf(`%s=~"$%[1]s"`, v.Name)) {
						t.Errorf("%s: %s is not narrowed by $%s", p.Title, found[1], v.Name)
					}
				}
			}
		}
	}
}

func TestLegendsTellLinesApart(t *testing.T) {
	list := readList(t)
	label := regexp.MustCompile(`\{\{ *(\w+) *\}\}`)
	for _, p := range readDashboard(t).shown() {
		legends := map[string]bool{}
		for _, target := range p.Targets {
			var named []string
			for _, found := range label.FindAllStringSubmatch(target.LegendFormat, -1) {
				named = append(named, found[1])
			}
			slices.Sort(named)
			if has := list.result(t, plain(target.Expr)); !slices.Equal(named, has) {
				t.Errorf("%s: legend %q of lines with the labels %v", p.Title, target.LegendFormat, has)
			}
			if legends[target.LegendFormat] {
				t.Errorf("%s: legend %q is used twice", p.Title, target.LegendFormat)
			}
			legends[target.LegendFormat] = true
		}
	}
}

var variableInText = regexp.MustCompile(`\$\{?(\w+)`)

func TestVariablesAreDefinedAndUsed(t *testing.T) {
	d := readDashboard(t)
	used := map[string]bool{}
	for _, p := range d.shown() {
		for _, target := range p.Targets {
			for _, found := range variableInText.FindAllStringSubmatch(target.Expr+p.Datasource.UID+p.Title+target.LegendFormat, -1) {
				used[found[1]] = true
			}
		}
	}
	for i, v := range d.Templating.List {
		for _, found := range variableInText.FindAllStringSubmatch(v.Query+v.Datasource.UID, -1) {
			if !slices.ContainsFunc(d.Templating.List[:i], func(before variable) bool { return before.Name == found[1] }) {
				t.Errorf("variable %s uses %s, which is not defined before it", v.Name, found[1])
			}
		}
		if !used[v.Name] {
			t.Errorf("variable %s is not used", v.Name)
		}
		delete(used, v.Name)
		switch {
		case v.Type == "datasource" && v.Query != "prometheus":
			t.Errorf("variable %s selects a data source of type %s", v.Name, v.Query)
		case v.Type != "datasource" && v.Datasource != theDatasource:
			t.Errorf("variable %s queries the data source %v", v.Name, v.Datasource)
		}
	}
	for name := range used {
		if !strings.HasPrefix(name, "__") {
			t.Errorf("variable %s is not defined", name)
		}
	}
}

func TestPanelsAreComplete(t *testing.T) {
	units := []string{"short", "s", "ops", "reqps", "eps"}
	d := readDashboard(t)
	if d.ID != nil {
		t.Errorf("the dashboard has the id %v, which belongs to a single Grafana", d.ID)
	}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if p.ID <= 0 || ids[p.ID] {
			t.Errorf("%q: its id %d is missing or used twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Title == "" {
			t.Errorf("panel %d has no title", p.ID)
		}
	}
	for _, p := range d.shown() {
		if unit := p.FieldConfig.Defaults.Unit; !slices.Contains(units, unit) {
			t.Errorf("%q: its unit %q is none of %v", p.Title, unit, units)
		}
		if err := fitting(p); err != nil {
			t.Errorf("%q: %v", p.Title, err)
		}
		if len(p.Description) < 60 || !strings.HasSuffix(p.Description, ".") {
			t.Errorf("%q: the description does not explain what to do: %q", p.Title, p.Description)
		}
		if p.Datasource != theDatasource {
			t.Errorf("%q queries the data source %v", p.Title, p.Datasource)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			refs[target.RefID] = true
		}
		if len(p.Targets) == 0 || len(refs) != len(p.Targets) || refs[""] {
			t.Errorf("%q: no queries, or two of the same name", p.Title)
		}
	}
}

// fitting returns an error if the unit of the panel does not fit its queries.
func fitting(p panel) error {
	for _, target := range p.Targets {
		rate := strings.HasPrefix(target.Expr, "sum") && strings.Contains(target.Expr, "rate(")
		seconds := strings.HasPrefix(target.Expr, "histogram_quantile") || strings.Contains(target.Expr, "_seconds")
		unit := p.FieldConfig.Defaults.Unit
		if rate != slices.Contains([]string{"ops", "reqps", "eps"}, unit) || seconds != (unit == "s") {
			return fmt.Errorf("%s is not in %q", target.Expr, unit)
		}
	}
	return nil
}

func TestPanelsDoNotOverlap(t *testing.T) {
	const width = 24
	taken := map[[2]int]string{}
	var wrong []error
	for _, p := range readDashboard(t).Panels {
		at := p.GridPos
		if at.H <= 0 || at.W <= 0 || at.X < 0 || at.Y < 0 || at.X+at.W > width || p.Type == "row" && at.W != width {
			wrong = append(wrong, fmt.Errorf("%q does not fit: %+v", p.Title, at))
			continue
		}
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					wrong = append(wrong, fmt.Errorf("%q overlaps %q at %d, %d", p.Title, other, x, y))
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	if err := errors.Join(wrong...); err != nil {
		t.Error(err)
	}
}

func TestTheDashboardNamesNoHost(t *testing.T) {
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`https?://|__inputs|localhost`).Find(text); found != nil {
		t.Errorf("%s has %s", dashboardFile, found)
	}
}
