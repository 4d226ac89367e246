// Package mix makes the API objects of an imaginary large cluster, for the benchmarks and tests of
// package share.
//
// The memory that sharing saves depends on which parts of real objects are equal. So what differs
// between the real Pods of one owner also differs here: the name, the UID, the version, the suffix
// of the volume with the access to the API wherever it occurs, the node, the addresses, the
// container IDs, all times and restarts. In the managed fields, the owner's UID and the addresses
// differ. The parts that the author of a manifest writes are equal for all Pods of an application,
// and different for each application.
//
// Only third-party parts, such as the sidecar, are equal in all namespaces. The same seed makes
// the same objects.
package mix

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podsPerNode is the mean number of Pods on a node.
const podsPerNode = 50

// namespaceApps is the number of applications in a namespace.
const namespaceApps = 20

type kind uint8

const (
	daemonSet kind = iota
	replicaSet
	statefulSet
	job
)

// daemonSets have a Pod on each node: 16 Pods of 100.
const daemonSets = 8

// Mix is a cluster. Its owners have from one to hundreds of Pods. Only one goroutine at a time may
// use a Mix.
type Mix struct {
	seed   uint64
	nodes  int
	owners []owner // in the order of a list of their Pods

	// made is the template of all Pods of one owner. Callers ask for Pods in the order of a list,
	// so one template is enough, and a Mix takes little memory.
	made   *template
	madeOf int
}

type owner struct {
	kind  kind
	app   int
	run   int // of a CronJob
	first int // the number of its first Pod
	pods  int
}

// New returns a cluster with this number of Pods, and one node for 50 Pods. There is one owner for
// about 20 Pods: 8 DaemonSets with 16 % of the Pods, Deployments with 1 to 400 replicas, half of
// which have less than 5, StatefulSets with 1 to 7 replicas, and three runs of each CronJob.
func New(seed uint64, pods int) *Mix {
	m := &Mix{seed: seed, nodes: max(1, pods/podsPerNode), madeOf: -1}
	made := 0
	add := func(o owner) {
		o.pods = min(o.pods, pods-made)
		if o.pods <= 0 {
			return
		}
		o.first = made
		m.owners, made = append(m.owners, o), made+o.pods
	}
	for d := range daemonSets {
		add(owner{kind: daemonSet, app: d, pods: m.nodes})
	}
	for app := daemonSets; made < pods; app++ {
		r := m.numbers(ofSize, app, 0)
		switch n := r.IntN(100); {
		case n < 70:
			add(owner{kind: replicaSet, app: app, pods: replicas(r)})
		case n < 85:
			add(owner{kind: statefulSet, app: app, pods: 1 + r.IntN(7)})
		default:
			for run := range 3 {
				add(owner{kind: job, app: app, run: run, pods: 1})
			}
		}
	}
	return m
}

// replicas returns a random size of a Deployment: half of the sizes are less than 5, and some are
// hundreds.
func replicas(r *rand.Rand) int {
	if r.IntN(2) == 0 {
		return 1 + r.IntN(4)
	}
	u := r.Float64()
	return int(5 * math.Pow(80, u*u))
}

// Owners returns the number of owners of Pods.
func (m *Mix) Owners() int { return len(m.owners) }

// Nodes returns the number of nodes.
func (m *Mix) Nodes() int { return m.nodes }

// Pod returns the i-th Pod after a number of updates. Each update restarts one of its containers.
// Pods have numbers from 0, in the order of a list: by namespace, then by owner. The caller may
// change the Pod.
func (m *Mix) Pod(i, updates int) *corev1.Pod {
	at := sort.Search(len(m.owners), func(o int) bool { return m.owners[o].first > i }) - 1
	if m.madeOf != at {
		m.made, m.madeOf = m.newTemplate(at), at
	}
	p := m.made.pod.DeepCopy()
	m.own(p, i)
	for u := range updates {
		m.update(p, i, u)
	}
	m.manage(p)
	return p
}

// These are the purposes of random numbers. The numbers for one purpose do not depend on those for
// others.
const (
	ofSize uint64 = iota + 1
	ofApp
	ofOwner
	ofPod
	ofUpdate
	ofNode
	ofImage
	ofSlice
	ofConfigMap
	ofStranger
)

// numbers returns a random generator that always yields the same numbers for the same purpose,
// object and turn.
func (m *Mix) numbers(purpose uint64, object, turn int) *rand.Rand {
	return rand.New(rand.NewPCG(m.seed<<8|purpose, uint64(object)<<16|uint64(turn)))
}

// uidOf returns a random UID.
func uidOf(r *rand.Rand) types.UID {
	return types.UID(fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", r.Uint32(), r.Uint32N(1<<16), r.Uint32N(1<<12), r.Uint32N(1<<12), r.Uint64N(1<<48)))
}

const alphabet = "bcdfghjklmnpqrstvwxz2456789" // of the suffixes that Kubernetes makes

// letters returns a random suffix of n characters.
func letters(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

// suffixOf returns a suffix that looks random. Any 14 million consecutive numbers have different
// suffixes.
func suffixOf(number int) string {
	b := make([]byte, 5)
	left := number * 7_654_321 // not divisible by 3, as the number of suffixes is a power of it
	for i := range b {
		b[i] = alphabet[left%len(alphabet)]
		left /= len(alphabet)
	}
	return string(b)
}

// hex returns 4*words random hexadecimal digits.
func hex(r *rand.Rand, words int) string {
	var b []byte
	for range words {
		b = fmt.Appendf(b, "%04x", r.Uint32N(1<<16))
	}
	return string(b)
}

func oneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }
