package debug_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/informertest"
)

// hostile holds names that would do harm if the page did not escape them.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'></svg></style></script><iframe>`, `</bdi></table><form>`,
	`{{.}} ${x} <!-- -->`, "\u202eevil\u2066", "nul\x00byte", "bad\xff\xfeutf8", strings.Repeat("long<b>", 2000), `javascript:alert(1)`,
}

func TestHostileNamesDoNoHarmOnThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tags := func(name string) (html int, whole string) {
			src := informertest.NewSource(object(name, "1"))
			inf := newInformer(t, src, options{Name: name})
			stuck := func(ctx context.Context, _ event) error { <-ctx.Done(); return nil }
			addWatcher(t, inf, informer.WatcherFunc[configMap](stuck), informer.WatcherOptions{Name: name})
			failing := informertest.NewSource[configMap]()
			failing.Fail(informertest.VerbList, errors.New(name), -1)
			failing.Fail(informertest.VerbWatch, errors.New(name), -1)
			store := informertest.NewStore(nil)
			store.Fail(func(string, string) error { return errors.New(name) })
			broken := newInformer(t, informertest.NewSource(object("x", "1")), options{Name: name, Store: store, ErrorHandler: ignore})
			h := debug.Handler(runGroup(t, inf, newInformer(t, failing, options{Name: name, ErrorHandler: ignore}), broken).Health)
			if got := look(t, h); len(got.Informers) != 3 || len(got.Informers[0].Watchers[0].Calls) != 1 {
				t.Errorf("the JSON of %.40q is %+v", name, got)
			}
			whole = page(t, h)
			return strings.Count(whole, "<"), whole
		}
		want, _ := tags("harmless")
		for _, name := range hostile {
			got, whole := tags(name)
			if got != want {
				t.Errorf("with %.40q the page has %d tags, not %d", name, got, want)
			}
			if strings.ContainsRune(whole, 0) {
				t.Errorf("with %.40q the page has a NUL", name)
			}
		}
	})
}

func TestThePageShowsNothingOfWhatIsInObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		obj := object("a", "swordfish")
		obj.Labels, obj.Annotations = map[string]string{"l": "swordfish"}, map[string]string{"a": "swordfish"}
		src := informertest.NewSource(obj)
		inf := newInformer(t, src, options{})
		stuck := func(ctx context.Context, _ event) error { <-ctx.Done(); return nil }
		addWatcher(t, inf, informer.WatcherFunc[configMap](stuck), informer.WatcherOptions{})
		h := debug.Handler(runGroup(t, inf).Health)
		for _, format := range []string{"html", "json"} {
			shown := get(h, "/?format="+format).Body.String()
			if strings.Contains(shown, "swordfish") || !strings.Contains(shown, "default/a") {
				t.Errorf("the %s page shows the contents of the object, or lacks its key:\n%s", format, shown)
			}
		}
	})
}
