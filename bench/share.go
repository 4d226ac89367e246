package main

import (
	"context"
	"fmt"

	"github.com/customcacheinformer/informer/internal/mix"
)

// sharingSizes are the numbers of objects of the section about sharing.
type sharingSizes struct {
	pods, updated, unstructured, slices, configMaps, nodes, strangers int
}

// turns is how often each Pod is updated.
const turns = 3

func shareSection(sz sizes) section {
	n := sz.sharing
	cluster := mix.New(mixSeed, n.pods)
	about := fmt.Sprintf("The objects are those of a cluster that does not exist (package internal/mix): %d Pods of %d owners on %d nodes. ", n.pods, cluster.Owners(), cluster.Nodes()) +
		"16 % of the Pods are of 8 DaemonSets; the others are of Deployments with 1 to 400 replicas, half of which have less than 5, of StatefulSets, and of runs of CronJobs. About 40 % of all have a sidecar and an init container. " +
		"All that differs between real Pods of one owner differs here: name, UID, version, node, addresses, container IDs, all times, restarts, the suffix of the volume with the access to the API, and " +
		"UIDs and addresses in the managed fields. Unstructured Pods are the same Pods, decoded from JSON. A tenth of the ConfigMaps is the kube-root-ca.crt of a namespace; the others have data of their own. " +
		"A stranger is a Pod in which every string, number and time is random, so nothing can be shared.\n\n" +
		"The first column has objects as a client decodes them. Our columns have the same objects after a share.Table has made equal parts of them one piece of memory. This needs no informer, so there is " +
		"one figure for both queues. The two are measured in processes of their own. There each object is encoded when its turn comes, and decoded alone, so nothing is shared before. " +
		"Where a row compares CPU with decoding, the first column is the CPU time of the thread that decodes an object, and ours is the time to share it afterwards. Both are of one process, by turns; a ratio of 2 says that sharing takes " +
		"half the time of decoding. The CPU of a collection is the median of 5 calls of runtime.GC while all objects live. An update restarts a container: version, container ID, restarts and times change. " +
		"The figure after all objects are dropped includes 8 B each for the slice that had them. The last row is of whole informers; only ours has Options.Share. " +
		"The figures hardly vary, so only one round is measured, without a warm-up round. For the same Pods in the cache of controller-runtime, run go test -v -run CacheTakes ./controllerruntime."
	runs := &sharingRuns{done: map[sharing]costs{}}
	pods := sharing{Objects: "Pods", Count: n.pods}
	stripped := pods
	stripped.Stripped = true
	updated := sharing{Objects: "Pods", Count: n.updated, Updates: turns}
	s := section{
		name:     "share",
		title:    fmt.Sprintf("Sharing equal parts of %d Pods, and of others", n.pods),
		about:    about,
		still:    true,
		oneQueue: true,
		cases: []measurement{
			runs.compare(pods, pods,
				compared{row{name: "a Pod of the mix as protobuf", unit: "B", plain: true}, costs.wire, costs.wire},
				compared{row{name: "heap per Pod", unit: "B", floor: atMost(0.38)}, costs.heap, costs.heap},
				compared{row{name: "CPU to decode a Pod, and to share it", unit: "µs", floor: atMost(1.5)}, nil, costs.sharing},
				compared{row{name: "CPU of a collection of the live heap", unit: "ms", floor: atMost(0.7)}, costs.collection, costs.collection},
				compared{row{name: "left per Pod after all are dropped", unit: "B", plain: true, floor: floor{below: 100}}, costs.left, costs.left}),
			runs.compare(pods, stripped,
				compared{row{name: "heap per Pod, shared without managed fields", unit: "B", floor: atMost(0.30)}, costs.heap, costs.heap}),
			runs.compare(stripped, stripped,
				compared{row{name: "heap per Pod, both without managed fields", unit: "B"}, costs.heap, costs.heap}),
			runs.compare(updated, updated,
				compared{row{name: fmt.Sprintf("heap per Pod after %d updates of each", turns), unit: "B"}, costs.updatedHeap, costs.updatedHeap},
				compared{row{name: "the same, in percent of before", unit: "%", plain: true, floor: floor{below: 110}}, costs.growth, costs.growth},
				compared{row{name: "CPU to decode an update, and to share it", unit: "µs", floor: atMost(0.7)}, nil, costs.sharingUpdate}),
		},
	}
	for _, of := range []struct {
		sharing
		heap, cpu floor
	}{
		{sharing{Objects: "unstructured Pods", Count: n.unstructured}, atMost(0.25), floor{}},
		{sharing{Objects: "EndpointSlices", Count: n.slices}, atMost(0.9), floor{}},
		{sharing{Objects: "ConfigMaps", Count: n.configMaps}, atMost(0.9), floor{}},
		{sharing{Objects: "Nodes", Count: n.nodes}, floor{}, floor{}},
		{sharing{Objects: "strangers", Count: n.strangers}, atMost(1.03), atMost(2)},
	} {
		objects := fmt.Sprintf("%d %s", of.Count, of.Objects)
		s.cases = append(s.cases, runs.compare(of.sharing, of.sharing,
			compared{row{name: objects + ", heap of each", unit: "B", floor: of.heap}, costs.heap, costs.heap},
			compared{row{name: objects + ", CPU to decode one, and to share it", unit: "µs", floor: of.cpu}, nil, costs.sharing}))
	}
	watched := mix.New(mixSeed, n.updated)
	s.cases = append(s.cases, measurement{
		rows: []row{{name: fmt.Sprintf("heap per Pod in an informer of %d", n.updated), unit: "B", floor: atMost(0.38)}},
		measure: func(ctx context.Context, side side) ([]float64, error) {
			return heapOf(ctx, side, n.updated, func(i int) pod { return decodePod(watched.Pod(i, 0)) }, keeping[pod]{shared: true})
		},
	})
	return s
}

// atMost returns the floor of a row of which our side may take this much of client-go's figure.
func atMost(part float64) floor { return both(1 / part) }

// compared is a row, and the figures in it: of objects as they are, and of shared ones. If asIs is
// nil, the first is the time to decode the objects that are shared.
type compared struct {
	row
	asIs, shared func(costs) float64
}

// compare returns a measurement of objects as they are beside shared objects.
func (r *sharingRuns) compare(asIs, ours sharing, rows ...compared) measurement {
	ours.Shared = true
	var m measurement
	for _, c := range rows {
		m.rows = append(m.rows, c.row)
	}
	m.measure = func(ctx context.Context, s side) (values []float64, err error) {
		for _, c := range rows {
			of, figure := ours, c.shared
			if s == clientGo {
				figure = c.asIs
				switch {
				case figure != nil:
					of = asIs
				case ours.Updates > 0:
					figure = costs.decodingUpdate
				default:
					figure = costs.decoding
				}
			}
			result, err := r.run(ctx, of)
			if err != nil {
				return nil, err
			}
			values = append(values, figure(result))
		}
		return values, nil
	}
	return m
}
