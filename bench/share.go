package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/customcacheinformer/informer/internal/lab"
	"github.com/customcacheinformer/informer/internal/mix"
	"github.com/customcacheinformer/informer/share"
)

// turns is how often each Pod is updated, and collections how often the collection of the live heap is
// measured.
const turns, collections = 3, 5

// compared is a row with a figure of objects as they are, and one of shared ones, by the names of costs. If
// asIs is empty, it is the same figure. Otherwise both are of the process with shared objects.
type compared struct {
	row
	shared, asIs string
}

func shareSection(sz sizes) section {
	cluster := mix.New(mixSeed, sz.pods)
	s := section{
		name:  "share",
		title: fmt.Sprintf("Sharing equal parts of %d Pods, and of others", sz.pods),
		about: fmt.Sprintf("The objects are those of a cluster that does not exist (package internal/mix): %d Pods of %d owners on %d nodes. ", sz.pods, cluster.Owners(), cluster.Nodes()) +
			"16 % of the Pods are of 8 DaemonSets; the others are of Deployments with 1 to 400 replicas, half of which have less than 5, of StatefulSets, and of runs of CronJobs. About 40 % of all have a sidecar and an init container. " +
			"All that differs between real Pods of one owner differs here: name, UID, version, node, addresses, container IDs, all times, restarts, the suffix of the volume with the access to the API, and " +
			"UIDs and addresses in the managed fields. Unstructured Pods are the same Pods, decoded from JSON. A tenth of the ConfigMaps is the kube-root-ca.crt of a namespace; the others have data of their own. " +
			"A stranger is a Pod in which every string, number and time is random, so nothing can be shared.\n\n" +
			"The first column has objects as a client decodes them. Our columns have the same objects after a share.Table has made equal parts of them one piece of memory. This needs no informer, so there is " +
			"one figure for both queues. The two are measured in processes of their own. There each object is encoded when its turn comes, and decoded alone, so nothing is shared before. " +
			"Where a row compares CPU with decoding, the first column is the CPU time of the thread that decodes an object, and ours is the time to share it afterwards. Both are of one process, by turns; a ratio of 2 says that sharing takes " +
			"half the time of decoding. The CPU of a collection is the median of 5 calls of runtime.GC while all objects live. An update restarts a container: version, container ID, restarts and times change. " +
			"The figure after all objects are dropped includes 8 B each for the slice that had them. The last row is of whole informers; only ours has Options.Share. " +
			"The figures hardly vary, so only one round is measured, without a warm-up round. For the same Pods in the cache of controller-runtime, run go test -v -run CacheTakes ./controllerruntime.",
		once:     true,
		oneQueue: true,
	}
	runs := sharingRuns{}
	add := func(asIs, ours sharing, rows ...compared) { s.cases = append(s.cases, runs.compare(asIs, ours, rows)) }
	pods := sharing{Objects: "Pods", Count: sz.pods}
	stripped, updated := pods, pods
	stripped.Stripped, updated.Count, updated.Updates = true, sz.pods*3/10, turns
	add(pods, pods,
		compared{row{name: "heap per Pod", unit: "B", floor: atMost(0.38)}, "heap", ""},
		compared{row{name: "CPU to decode a Pod, and to share it", unit: "µs", floor: atMost(1.5)}, "sharing", "decoding"},
		compared{row{name: "CPU of a collection of the live heap", unit: "ms", floor: atMost(0.7)}, "collection", ""},
		compared{row{name: "left per Pod after all are dropped", unit: "B", plain: true, floor: floor{below: 100}}, "left", ""})
	add(pods, stripped,
		compared{row{name: "heap per Pod, shared without managed fields", unit: "B", floor: atMost(0.30)}, "heap", ""})
	add(stripped, stripped,
		compared{row{name: "heap per Pod, both without managed fields", unit: "B"}, "heap", ""})
	add(updated, updated,
		compared{row{name: fmt.Sprintf("heap per Pod after %d updates of each", turns), unit: "B"}, "heap after updates", ""},
		compared{row{name: "the same, in percent of before", unit: "%", plain: true, floor: floor{below: 110}}, "growth", ""},
		compared{row{name: "CPU to decode an update, and to share it", unit: "µs", floor: atMost(0.7)}, "sharing of updates", "decoding of updates"})
	for _, of := range []struct {
		objects   string
		count     int
		heap, cpu floor
	}{
		{"unstructured Pods", sz.pods / 20, atMost(0.25), floor{}},
		{"EndpointSlices", sz.pods / 10, atMost(0.9), floor{}},
		{"ConfigMaps", sz.pods / 5, atMost(0.9), floor{}},
		{"Nodes", sz.pods / 50, floor{}, floor{}},
		{"strangers", sz.pods / 20, atMost(1.03), atMost(2)},
	} {
		both := sharing{Objects: of.objects, Count: of.count}
		objects := fmt.Sprintf("%d %s", of.count, of.objects)
		add(both, both,
			compared{row{name: objects + ", heap of each", unit: "B", floor: of.heap}, "heap", ""},
			compared{row{name: objects + ", CPU to decode one, and to share it", unit: "µs", floor: of.cpu}, "sharing", "decoding"})
	}
	whole := podHeap(fmt.Sprintf("heap per Pod in an informer of %d", updated.Count), updated.Count, decodePod, keeping[pod]{shared: true})
	whole.rows[0].floor = atMost(0.38)
	s.cases = append(s.cases, whole)
	return s
}

// sharingRuns keeps results, because several rows show figures of one process.
type sharingRuns map[sharing]costs

// compare returns a measurement of objects as they are compared with shared objects.
func (r sharingRuns) compare(asIs, ours sharing, rows []compared) (m measurement) {
	ours.Shared = true
	for _, c := range rows {
		m.rows = append(m.rows, c.row)
	}
	m.measure = func(ctx context.Context, s side) (values []float64, err error) {
		for _, c := range rows {
			of, figure := ours, c.shared
			switch {
			case s == clientGo && c.asIs != "":
				figure = c.asIs
			case s == clientGo:
				of = asIs
			}
			if r[of] == nil {
				var result costs
				if err := lab.Measure(ctx, "sharing", of, &result); err != nil {
					return nil, err
				}
				r[of] = result
			}
			values = append(values, r[of][figure])
		}
		return values, nil
	}
	return m
}

// sharing describes the objects that a process measures.
type sharing struct {
	Objects  string // a key of wires
	Count    int
	Shared   bool
	Stripped bool // without managed fields
	Updates  int  // of each object
}

// costs are the figures of such a process, per object except that of the collection.
type costs map[string]float64

// object is one whose managed fields can be removed.
type object interface {
	SetManagedFields([]metav1.ManagedFieldsEntry)
}

// wire makes objects as a server sends them, and decodes them as a client does.
type wire struct {
	encode func(i, updates int) ([]byte, error)
	decode func([]byte) (object, error)
}

// wires holds the kinds of objects.
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
func (s sharing) measure() (costs, error) {
	newWire, ok := wires[s.Objects]
	if !ok {
		return nil, fmt.Errorf("there are no %q", s.Objects)
	}
	runtime.LockOSThread() // threadTime needs it
	defer runtime.UnlockOSThread()
	var (
		w       = newWire(mix.New(mixSeed, s.Count))
		table   = share.New()
		objects = make([]object, s.Count)
		got     = costs{}
		failed  error
		n       = float64(s.Count)
	)
	// one makes an object and takes it in. The first error is kept.
	one := func(i, updates int) (obj object, decoding time.Duration) {
		sent, err := w.encode(i, updates)
		begin := threadTime()
		if err == nil {
			obj, err = w.decode(sent)
		}
		failed = cmp.Or(failed, err)
		return obj, threadTime() - begin
	}
	// live returns the live heap. The cluster keeps the owner of its last object, so the last
	// object must always be the same.
	live := func() float64 {
		one(0, 0)
		heap, _ := lab.Settled()
		return heap
	}
	// take takes in the next state of all objects, which is one of some turns of which the figures are means.
	take := func(updates, turns int, of string) {
		var decoding, sharing time.Duration
		for i, old := range objects {
			obj, took := one(i, updates)
			if failed != nil {
				return
			}
			if s.Stripped {
				obj.SetManagedFields(nil)
			}
			begin := threadTime()
			switch {
			case s.Shared && old == nil:
				table.Share(obj)
			case s.Shared:
				table.ShareUpdate(old, obj)
			}
			if s.Shared {
				sharing += threadTime() - begin
			}
			decoding += took
			objects[i] = obj
		}
		got["decoding"+of] += microseconds(decoding) / n / float64(turns)
		got["sharing"+of] += microseconds(sharing) / n / float64(turns)
	}
	before := live()
	take(0, 1, "")
	got["heap"] = (live() - before) / n
	var all []float64
	for range collections {
		begin := lab.CPU()
		runtime.GC()
		all = append(all, milliseconds(lab.CPU()-begin))
	}
	got["collection"] = lab.Median(all)
	for u := range s.Updates {
		take(u+1, s.Updates, " of updates")
	}
	got["heap after updates"] = (live() - before) / n
	got["growth"] = 100 * got["heap after updates"] / got["heap"]
	clear(objects)
	// The table notices a while after the collection, on a goroutine of the runtime.
	for deadline := time.Now().Add(time.Minute); table.Stats().Parts > 100 && time.Now().Before(deadline); runtime.Gosched() {
		runtime.GC()
	}
	got["left"] = (live() - before) / n
	runtime.KeepAlive(objects)
	runtime.KeepAlive(table)
	return got, failed
}
