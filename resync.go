package informer

import (
	"time"
)

// resyncTimer says when the next resync of a listener is due. Only pop uses it, except
// period, which does not change.
type resyncTimer struct {
	period time.Duration   // 0 for no resyncs
	synced <-chan struct{} // starts the first period; nil afterwards
	timer  *time.Timer
	due    bool
}

// restart begins the next period.
func (r *resyncTimer) restart() {
	r.synced, r.due = nil, false
	if r.period > 0 {
		r.stop()
		r.timer = time.NewTimer(r.period)
	}
}

func (r *resyncTimer) ring() <-chan time.Time {
	if r.timer == nil {
		return nil
	}
	return r.timer.C
}

func (r *resyncTimer) stop() {
	if r.timer != nil {
		r.timer.Stop()
	}
}
