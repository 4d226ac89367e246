package source

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
)

// feed is the cache.ReflectorStore that the reflector writes into. It passes each change to the
// sink with its version, and notices if a list shows that the server went back in time. Only the
// reflector's goroutine uses it.
type feed struct {
	ctx     context.Context
	reading *reading
	sink    Sink
	// ordered is false while a watch without a start version sends its first objects: they
	// do not come in the order of their versions.
	ordered bool
}

// Add passes an object that a watch added to the sink. Add, Update and Delete always return nil,
// because the reflector could only log an error.
func (f *feed) Add(obj any) error {
	f.reading.answers.notice(obj)
	f.sink.Upsert(obj, f.reach(obj))
	return nil
}

func (f *feed) Update(obj any) error {
	f.ordered = true
	f.sink.Upsert(obj, f.reach(obj))
	return nil
}

func (f *feed) Delete(obj any) error {
	f.ordered = true
	f.sink.Delete(obj, f.reach(obj))
	return nil
}

// reach returns the version that the watch has reached with obj, or "" if the version is not
// known.
func (f *feed) reach(obj any) string {
	m, err := meta.Accessor(obj) // forwarder has checked that obj is not nil
	if err != nil || !f.ordered {
		return ""
	}
	version := m.GetResourceVersion()
	if isAnyVersion(version) {
		return ""
	}
	f.reading.reached = version
	return version
}

// Bookmark reports to the sink that there are no further changes up to version.
func (f *feed) Bookmark(version string) error {
	f.ordered, f.reading.reached = true, version
	f.sink.Bookmark(version)
	return nil
}

// Replace passes a complete list to the sink, or the end of a list that the sink has got in
// parts. It returns an error if one object has another type, so that such a list never counts as
// empty.
func (f *feed) Replace(list []any, version string) error {
	defer f.reading.turn.release()
	if f.reading.resumption.listed.Swap(false) {
		f.ordered = true
		f.reading.worked("list")
		return nil // the sink already has the objects that were not listed
	}
	for _, obj := range list {
		if err := f.sink.CheckType(obj); err != nil {
			f.reading.failed(f.ctx, "list", err)
			return err
		}
	}
	if version == "" && !f.reading.versionless.Load() {
		f.reading.callbacks.Failed(f.ctx, &Failure{Op: "list", Err: errVersionless})
	}
	doubtful := f.wentBack(version)
	doubtful = f.reading.moved.Swap(false) || doubtful
	f.reading.answers.listed, f.reading.blind = version, false
	f.reading.versionless.Store(version == "")
	if !f.reading.parts.end(f.sink, version) {
		f.reading.answers.known.Store(false)
		if len(list) > 0 {
			f.reading.answers.notice(list[0])
		}
		f.sink.Replace(list, version, doubtful)
	}
	f.ordered = !isAnyVersion(version)
	return nil
}

// wentBack records that a complete list of this version is in. If the list shows that the
// server went back in time, wentBack returns true and reports a failure.
func (f *feed) wentBack(version string) bool {
	before, shown := f.reading.reached, f.reading.parts.last()
	f.reading.reached = version
	f.reading.lastList.Set(f.reading.clock)
	f.reading.worked("list")
	if !f.reading.trust.regain() && !older(version, before) && !older(version, shown) {
		return false
	}
	f.reading.callbacks.Failed(f.ctx, &Failure{Op: "list", Err: fmt.Errorf(
		"the server has gone back in time: its state of resourceVersion %s takes the place of that of %s", version, cmp.Or(before, shown))})
	return true
}

// Resync is never called, because the reflector has no resync period.
func (f *feed) Resync() error { return nil }
