package scrape

import (
	"strings"
	"testing"
)

func TestMissingNewAndRetypedMetricsAreNamed(t *testing.T) {
	err := Compare(strings.NewReader("# TYPE workqueue_depth counter\n# TYPE workqueue_new gauge\n# TYPE other gauge\n"), "workqueue_")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`workqueue_depth is documented as a gauge, and is "counter"`, `workqueue_new is not documented`, `workqueue_retries_total is documented as a counter, and is ""`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not reported: %s; but:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "other") || strings.Contains(err.Error(), "informer_") {
		t.Errorf("what was not asked for is named:\n%v", err)
	}
	if err := Compare(strings.NewReader("# TYPE workqueue_new gauge\n"), "workqueue_", "-workqueue_"); err == nil || strings.Contains(err.Error(), "workqueue_new") {
		t.Errorf("without the metrics of workqueues: %v, want an error that nothing is documented", err)
	}
	if err := Compare(strings.NewReader(""), "nothing_"); err == nil {
		t.Error("nothing is documented, and that is well")
	}
}
