package source

import (
	"sync/atomic"

	"github.com/customcacheinformer/informer/internal/framing"
)

// decoded counts the objects that this package has decoded itself.
type decoded struct {
	objects atomic.Int64
	left    atomic.Int64 // answers with objects that were left to client-go
	because atomic.Pointer[string]
	misfits atomic.Int32 // lists in a row that had to be requested again
}

// mostMisfits is how many lists in a row may have to be requested again. After that, client-go
// decodes all lists. Otherwise, if the Go type of the objects has another name than their kind,
// each list would be requested twice.
const mostMisfits = 3

// Decoding is how the objects of a Source are decoded.
type Decoding struct {
	Objects int    // that were taken off the bodies of answers
	Left    int    // answers with objects that were left to client-go
	Because string // the reason for the last of these
}

func (d *decoded) status() (status Decoding) {
	status = Decoding{Objects: int(d.objects.Load()), Left: int(d.left.Load())}
	if because := d.because.Load(); because != nil {
		status.Because = *because
	}
	return status
}

const (
	unwrapped = "the configuration of the client has no informer.Transport"
	misfits   = "an answer could not be told apart from a list before its end"
)

// answered records whether tap has decoded an answer.
func (d *decoded) answered(tap *framing.Tap) {
	because := tap.Why()
	switch {
	case tap.Misfit():
		because = misfits
	case tap.Used():
		return
	case because == "":
		because = unwrapped
	}
	d.leave(because)
}

func (d *decoded) leave(because string) {
	d.left.Add(1)
	d.because.Store(&because)
}
