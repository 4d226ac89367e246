package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/customcacheinformer/informer/internal/mix"
	"github.com/customcacheinformer/informer/share"
)

// sharingArgument is the first argument of a process that measures objects for the section about
// sharing. The second argument is a sharing as JSON.
const sharingArgument = "sharing"

// mixSeed makes every run use the same objects.
const mixSeed = 1

// collections is how often the collection of the live heap is measured.
const collections = 5

// sharing says which objects a process measures.
type sharing struct {
	Objects  string // a key of wires
	Count    int
	Shared   bool
	Stripped bool // without managed fields
	Updates  int  // of each object
}

// costs are the figures of such a process, per object except Collection.
type costs struct {
	Wire, Heap, UpdatedHeap, Left                    float64 // in bytes
	Decoding, Sharing, DecodingUpdate, SharingUpdate time.Duration
	Collection                                       time.Duration
}

func (c costs) wire() float64           { return c.Wire }
func (c costs) heap() float64           { return c.Heap }
func (c costs) left() float64           { return c.Left }
func (c costs) updatedHeap() float64    { return c.UpdatedHeap }
func (c costs) growth() float64         { return 100 * c.UpdatedHeap / c.Heap }
func (c costs) decoding() float64       { return microseconds(c.Decoding) }
func (c costs) sharing() float64        { return microseconds(c.Sharing) }
func (c costs) decodingUpdate() float64 { return microseconds(c.DecodingUpdate) }
func (c costs) sharingUpdate() float64  { return microseconds(c.SharingUpdate) }
func (c costs) collection() float64     { return milliseconds(c.Collection) }

// sharingRuns keeps results, because several rows show figures of one process.
type sharingRuns struct{ done map[sharing]costs }

// run measures objects in a process of its own, unless that was done before.
func (r *sharingRuns) run(ctx context.Context, of sharing) (result costs, err error) {
	if result, ok := r.done[of]; ok {
		return result, nil
	}
	program, err := os.Executable()
	if err != nil {
		return result, err
	}
	argument, err := json.Marshal(of)
	if err != nil {
		return result, err
	}
	cmd := exec.CommandContext(ctx, program, sharingArgument, string(argument))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &result)
	}
	if err != nil {
		return result, fmt.Errorf("the process for %d %s: %w", of.Count, of.Objects, errors.Join(err, context.Cause(ctx)))
	}
	r.done[of] = result
	return result, nil
}

// isSharing reports whether this process must measure objects.
func isSharing(args []string) bool { return len(args) == 3 && args[1] == sharingArgument }

// beSharing is the main function of a process that measures objects.
func beSharing(out io.Writer, argument string) error {
	var of sharing
	if err := json.Unmarshal([]byte(argument), &of); err != nil {
		return err
	}
	result, err := of.measure()
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}

// object is one whose managed fields can be removed.
type object interface {
	SetManagedFields([]metav1.ManagedFieldsEntry)
}

// wire makes objects as a server sends them, and decodes them as a client does.
type wire struct {
	encode func(i, updates int) ([]byte, error)
	decode func([]byte) (object, error)
}

// wires has the kinds of objects.
var wires = map[string]func(*mix.Mix) wire{
	"Pods":              func(m *mix.Mix) wire { return protobuf(m.Pod) },
	"unstructured Pods": func(m *mix.Mix) wire { return asJSON(m.Pod) },
	"EndpointSlices":    func(m *mix.Mix) wire { return protobuf(still(m.EndpointSlice)) },
	"ConfigMaps":        func(m *mix.Mix) wire { return protobuf(still(m.ConfigMap)) },
	"Nodes":             func(m *mix.Mix) wire { return protobuf(still(m.Node)) },
	"strangers":         func(m *mix.Mix) wire { return protobuf(still(m.Stranger)) },
}

// still is for objects that are not updated.
func still[T any](object func(i int) T) func(i, updates int) T {
	return func(i, _ int) T { return object(i) }
}

func protobuf[T any, P interface {
	*T
	object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}](made func(i, updates int) P) wire {
	return wire{
		encode: func(i, updates int) ([]byte, error) { return made(i, updates).Marshal() },
		decode: func(sent []byte) (object, error) {
			p := P(new(T))
			return p, p.Unmarshal(sent)
		},
	}
}

func asJSON(made func(i, updates int) *corev1.Pod) wire {
	return wire{
		encode: func(i, updates int) ([]byte, error) {
			p := made(i, updates)
			p.APIVersion, p.Kind = "v1", "Pod"
			return json.Marshal(p)
		},
		decode: func(sent []byte) (object, error) {
			u := &unstructured.Unstructured{}
			return u, u.UnmarshalJSON(bytes.Clone(sent))
		},
	}
}

// measure takes objects in, updates them, and drops them.
func (s sharing) measure() (result costs, err error) {
	newWire, ok := wires[s.Objects]
	if !ok {
		return result, fmt.Errorf("there are no %q", s.Objects)
	}
	runtime.LockOSThread() // threadTime needs it
	defer runtime.UnlockOSThread()
	w, table := newWire(mix.New(mixSeed, s.Count)), share.New()
	// live returns the live heap. The cluster keeps the owner of its last object, so the last
	// object must always be the same.
	live := func() (heap float64, err error) {
		sent, err := w.encode(0, 0)
		if err == nil {
			_, err = w.decode(sent)
		}
		heap, _ = settled()
		return heap, err
	}
	before, err := live()
	if err != nil {
		return result, err
	}
	// perObject sets a figure to the heap since before.
	perObject := func(figure *float64) error {
		heap, err := live()
		*figure = (heap - before) / float64(s.Count)
		return err
	}
	n, objects := time.Duration(s.Count), make([]object, s.Count)
	// take takes in the next state of all objects.
	take := func(updates int) (decoding, sharing time.Duration, size int, err error) {
		for i, old := range objects {
			sent, err := w.encode(i, updates)
			if err != nil {
				return 0, 0, 0, err
			}
			size += len(sent)
			begin := threadTime()
			obj, err := w.decode(sent)
			decoded := threadTime()
			if err != nil {
				return 0, 0, 0, err
			}
			if s.Stripped {
				obj.SetManagedFields(nil)
			}
			if s.Shared {
				stripped := threadTime()
				if old == nil {
					table.Share(obj)
				} else {
					table.ShareUpdate(old, obj)
				}
				sharing += threadTime() - stripped
			}
			decoding += decoded - begin
			objects[i] = obj
		}
		return decoding, sharing, size, nil
	}
	decoding, sharing, size, err := take(0)
	if err != nil {
		return result, err
	}
	result.Wire, result.Decoding, result.Sharing = float64(size)/float64(s.Count), decoding/n, sharing/n
	if err := perObject(&result.Heap); err != nil {
		return result, err
	}
	result.Collection = collection()
	for u := range s.Updates {
		decoding, sharing, _, err := take(u + 1)
		if err != nil {
			return result, err
		}
		all := n * time.Duration(s.Updates)
		result.DecodingUpdate, result.SharingUpdate = result.DecodingUpdate+decoding/all, result.SharingUpdate+sharing/all
	}
	if err := perObject(&result.UpdatedHeap); err != nil {
		return result, err
	}
	clear(objects)
	// The table notices a while after the collection, on a goroutine of the runtime.
	for deadline := time.Now().Add(time.Minute); table.Stats().Parts > 100 && time.Now().Before(deadline); runtime.Gosched() {
		runtime.GC()
	}
	if err := perObject(&result.Left); err != nil {
		return result, err
	}
	runtime.KeepAlive(objects)
	runtime.KeepAlive(table)
	return result, nil
}

// collection returns the CPU time of a collection of the live heap.
func collection() time.Duration {
	var all []float64
	for range collections {
		begin := cpuTime()
		runtime.GC()
		all = append(all, float64(cpuTime()-begin))
	}
	return time.Duration(median(all))
}
