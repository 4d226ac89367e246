package page_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
)

// node describes a part of the page to users of a screen reader.
type node struct {
	role, name string
	text       string // all text inside the node
}

func accessible(p *tab) []node {
	p.t.Helper()
	tree := command(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes
	byID := map[accessibility.NodeID]*accessibility.Node{}
	for _, n := range tree {
		byID[n.NodeID] = n
	}
	value := func(v *accessibility.Value) (text string) {
		if v != nil {
			_ = json.Unmarshal([]byte(v.Value), &text) // a value that is not a string leaves text empty
		}
		return text
	}
	var textOf func(n *accessibility.Node) string
	textOf = func(n *accessibility.Node) string {
		if n == nil {
			return ""
		}
		if value(n.Role) == "StaticText" {
			return value(n.Name)
		}
		var all strings.Builder
		for _, id := range n.ChildIDs {
			all.WriteString(textOf(byID[id]))
		}
		return all.String()
	}
	var nodes []node
	for _, n := range tree {
		if !n.Ignored {
			nodes = append(nodes, node{value(n.Role), strings.TrimSpace(value(n.Name)), textOf(n)})
		}
	}
	return nodes
}

func TestEveryPartOfThePageHasANameForThoseWhoDoNotSeeIt(t *testing.T) {
	t.Parallel()
	p := open(t, newTroubled(t))
	p.until("there is trouble", inTrouble)
	p.untilTrue("the charts are drawn", `document.querySelectorAll("svg[role=img]").length >= 3`)
	nodes := accessible(p)
	named := []string{"button", "link", "image", "img", "table", "heading", "region", "columnheader", "rowheader"}
	chart := regexp.MustCompile(`^waiting: now \d+, at most \d+ in the last minute$`)
	count := map[string]int{}
	for _, n := range nodes {
		count[n.role]++
		if slices.Contains(named, n.role) && n.name == "" {
			t.Errorf("a %s has no name, and the text %q", n.role, n.text)
		}
		if (n.role == "image" || n.role == "img") && !chart.MatchString(n.name) {
			t.Errorf("a chart is called %q", n.name)
		}
		if strings.ContainsAny(n.name+n.text, "●▲") {
			t.Errorf("a %s contains a bare sign: %q", n.role, n.name+n.text)
		}
	}
	t.Logf("%d nodes: %v", len(nodes), count)
	for role, want := range map[string]int{
		"main": 1, "banner": 1, "region": 3, "table": 3, "columnheader": 33, "rowheader": 6, "heading": 4, "button": 1, "link": 6, "searchbox": 1, "navigation": 1,
	} {
		if count[role] != want {
			t.Errorf("%d nodes are a %s, want %d", count[role], role, want)
		}
	}
	if images := count["image"] + count["img"]; images != 3 && images != 4 { // two watchers have nothing to do, and one has little
		t.Errorf("%d charts, want 3 or 4", images)
	}
	if got := eval[[]string](p, `[...document.querySelectorAll("h1")].map((h) => h.textContent)`); !slices.Equal(got, []string{"Informers"}) {
		t.Errorf("the first headings are %q", got)
	}
	for _, state := range []string{"watching", "store fails", "cannot sync", "well", "merging"} {
		if !slices.ContainsFunc(nodes, func(n node) bool { return n.role == "StaticText" && n.name == state }) {
			t.Errorf("the word %q is missing", state)
		}
	}
	if !slices.ContainsFunc(nodes, func(n node) bool { return n.role == "status" && strings.HasSuffix(n.text, "need attention.") }) {
		t.Error("the summary has no role \"status\"")
	}
}

// inTrouble reports whether the page of newTroubled shows all problems that appear quickly.
func inTrouble(c content) bool {
	return c.Button == "Pause" && c.informer("ConfigMap").State == "store fails" && len(c.informer("ConfigMap").Errors) == 1 &&
		c.informer("Secret").State == "cannot sync" && c.watcher("cache").state() == "well" && c.watcher("billing").state() == "merging"
}

//go:embed testdata/contrast.js
var contrastScript string

func TestTextAndChartsStandOutFromTheirGround(t *testing.T) {
	t.Parallel()
	p := open(t, newTroubled(t))
	p.until("there is trouble", inTrouble)
	grounds := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		p.prefer(scheme)
		parts := eval[[]struct {
			What   string  `json:"what"`
			Ink    string  `json:"ink"`
			Ground string  `json:"ground"`
			Ratio  float64 `json:"ratio"`
			Least  float64 `json:"least"`
		}](p, contrastScript)
		if len(parts) < 100 {
			t.Errorf("%s: looked at %d parts", scheme, len(parts))
		}
		lowest := map[string]float64{}
		for _, part := range parts {
			grounds[scheme] = part.Ground
			if part.Ratio < part.Least {
				t.Errorf("%s: %s, %s on %s, has a contrast of %.2f, less than %v", scheme, part.What, part.Ink, part.Ground, part.Ratio, part.Least)
			}
			if key := fmt.Sprint("least ", part.Least); lowest[key] == 0 || part.Ratio < lowest[key] {
				lowest[key] = part.Ratio
			}
		}
		t.Logf("%s: %d parts, the lowest contrast %v", scheme, len(parts), lowest)
	}
	if grounds["light"] == grounds["dark"] {
		t.Errorf("dark and light are the same: %v", grounds)
	}
}
