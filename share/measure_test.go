package share_test

import (
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer/internal/mix"
	"github.com/customcacheinformer/informer/share"
)

func TestMeasureShowsTheMemoryThatAnObjectAdds(t *testing.T) {
	table := share.New()
	var kept []*corev1.Pod // the table forgets the parts of an object that nothing else refers to
	measure := func() (bytes, added int) {
		kept = append(kept, mix.New(1, 100).Pod(7, 0))
		return table.Measure(kept[len(kept)-1])
	}
	bytes, added := measure()
	if bytes < 5000 || added < bytes*9/10 || added > bytes*11/10 {
		t.Errorf("the first Pod: %d bytes, of which %d are new", bytes, added)
	}
	for range 100 { // the table needs some objects to see that a part pays
		measure()
	}
	if bytes, added := measure(); bytes < 5000 || added > bytes/2 {
		t.Errorf("the same Pod again: %d bytes, of which %d are new", bytes, added)
	}
	runtime.KeepAlive(kept)
	pod := mix.New(1, 100).Pod(8, 0)
	table.Share(pod)
	if bytes, added := table.Measure(pod); bytes != added {
		t.Errorf("a Pod that was shared before: %d bytes, of which %d are new", bytes, added)
	}
	for _, obj := range []any{nil, 1, (*corev1.Pod)(nil), corev1.Pod{}} {
		if _, added := table.Measure(obj); added > 0 && obj != nil {
			t.Errorf("%T: %d bytes are new", obj, added)
		}
	}
	if n := table.Stats().Objects; n != 103 {
		t.Errorf("%d objects were shared", n)
	}
}
