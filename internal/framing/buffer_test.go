package framing

import (
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// sizes notes the sizes of the buffers that are read into.
type sizes struct {
	io.Reader
	all []int
}

func (s *sizes) Read(p []byte) (int, error) {
	s.all = append(s.all, len(p))
	return s.Reader.Read(p)
}

// TestOnlyALargeListGetsALargeBuffer has a list without items, of which a program may read a thousand at once, and
// a large one of small items.
func TestOnlyALargeListGetsALargeBuffer(t *testing.T) {
	item := `{"metadata":{"name":"` + strings.Repeat("x", 500) + `"}},`
	for items, large := range map[int]bool{0: false, 4: false, 5_000: true} {
		body := `{"kind":"PodList","apiVersion":"v1","items":[` + strings.TrimSuffix(strings.Repeat(item, items), ",") + `]}`
		taps, _ := TypeOf(reflect.TypeFor[*corev1.PodList]())
		tap := &Tap{Type: taps, Item: func(runtime.Object) error { return nil }}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", http.NoBody)
		reads := &sizes{Reader: strings.NewReader(body)}
		b, why := tap.body(r, &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {mediaJSON}}, Body: io.NopCloser(reads)})
		if b == nil {
			t.Fatal(why)
		}
		_, _ = io.Copy(io.Discard, b)
		if tap.Count() != items || slices.Max(reads.all) > 8<<10 != large || large && len(reads.all) > 20 {
			t.Errorf("%d items: %d were taken, by reads of %v", items, tap.Count(), reads.all)
		}
	}
}
