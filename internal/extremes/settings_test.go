package extremes

import (
	"slices"
	"strings"
	"testing"
)

func TestEachNumberThatAUserCanSetIsFound(t *testing.T) {
	packages, err := load([]string{"./testdata/shapes"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"shapes.New()(time.Duration)",
		"shapes.New()().Sleep(d)",
		"shapes.New(n)",
		"shapes.Options.Change(*shapes.limits).Most",
		"shapes.Options.Level",
		"shapes.Options.Limits.Most",
		"shapes.Options.Most",
		"shapes.Options.Pauses",
		"shapes.Options.Ratio",
		"shapes.Options.Retry returns wait",
		"shapes.Options.Size",
		"shapes.Others.Count",
		"shapes.Policy returns wait",
		"shapes.Policy(failures)",
		"shapes.Reader.Page(limit)",
		"shapes.Run(f) returns time.Duration",
		"shapes.Store.Delay(d)",
	}
	slices.Sort(want)
	if got := find(packages); !slices.Equal(got, want) {
		t.Errorf("found\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestATableThatDoesNotFitIsReported(t *testing.T) {
	table := Table{
		Trials:  map[string]Trial{"p.Options.Size": {}, "p.Options.Gone": {}, "p.Info.Count": {}},
		Untried: map[string]string{"p.Info.": "a figure", "p.Else.": "a figure", "p.Options.Bare": ""},
	}
	got := table.faults([]string{"p.Info.Age", "p.Info.Count", "p.Options.Bare", "p.Options.Name", "p.Options.Size"})
	want := []string{
		"p.Info.Count is tried, and",
		"p.Options.Bare is not in the table",
		"p.Options.Name is not in the table",
		"p.Options.Gone is in the table, but",
		"p.Else. has a reason",
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestAnErrorMustNameTheSetting(t *testing.T) {
	for setting, want := range map[string]string{
		"informer.Options.Backoff.Cap":            "Options.Backoff.Cap",
		"informer.Backoff(base)":                  "base",
		"informertest.StoreFaults.Delay(d)":       "d",
		"informer.NewFrom(opts).Backoff.Duration": "opts",
	} {
		if got := shortName(setting); got != want {
			t.Errorf("%s: got %s", setting, got)
		}
	}
}
