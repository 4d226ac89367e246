package extremes

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// There is a number in each place where a user can set one, and in some others.
const shapes = `package shapes

type Level uint8

type Options[T any] struct {
	Size     int
	Ratio    *float32
	Level    Level
	Pauses   []int64
	Limits   map[string]limits
	Other    *Others // walked by itself
	Retry    func(failures int) (wait int64, again bool)
	Change   func(*limits)
	Observe  func(figures)
	Name     string
	Item     T
	internal int
	limits
}

type Others struct{ Count int }
type Policy func(failures int) (wait int64, again bool)
type limits struct { Most uint; Other *limits }
type figures struct{ Count int }
type hidden struct{ deep }
type deep struct{}

func (deep) Delay(d int64) {}
func (deep) delay(d int64) {}

type Store struct{ hidden }
type Reader interface{ Page(limit int) figures }

func New[T any](opts Options[T], n int64, text string) (func(int64) interface{ Sleep(d int64) }, error) { return nil, nil }
func Run(f func() (int64, error)) figures { return figures{} }
func run(n int) {}
`

func TestEachNumberThatAUserCanSetIsFound(t *testing.T) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "shapes.go", shapes, 0)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := new(types.Config).Check(module+"shapes", files, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(`New()(int64) New()().Sleep(d) New(n) Options.Change(*shapes.limits).Most Options.Level Options.Limits.Most Options.Most
		Options.Pauses Options.Ratio Options.Retry_returns_wait Options.Size Others.Count Policy_returns_wait Policy(failures) Reader.Page(limit)
		Run(f)_returns_int64 Store.Delay(d)`)
	for n := range want {
		want[n] = "shapes." + strings.ReplaceAll(want[n], "_", " ")
	}
	slices.Sort(want)
	if got := find([]*types.Package{checked}); !slices.Equal(got, want) {
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
		"p.Else. is in the table, but",
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
