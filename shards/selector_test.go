package shards_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"regexp"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/shards"
)

type selecting struct {
	configMaps
	refusal error        // the answer to all requests with a selector that the server understands, or nil
	asked   atomic.Int64 // such requests
	ignores atomic.Bool  // the server knows no selector
	breaks  atomic.Bool  // the connection of the next request breaks
}

func (s *selecting) serves(_ *shards.Options, r *replica) { r.server, s.link = s, r.link }

// selects has a replica that starts read from a server that selects.
func selects(opts *shards.Options, r *replica) { new(selecting).serves(opts, r) }

var shardRange = regexp.MustCompile(`shardRange\(object\.metadata\.namespace, '(0x[0-9a-f]{16,17})', '(0x[0-9a-f]{16,17})'\)( \|\| )?`)

// filter returns a function that reports whether a request asks for an object.
func (s *selecting) filter(opts metav1.ListOptions) (func(runtime.Object) bool, error) {
	if s.breaks.CompareAndSwap(true, false) {
		return nil, io.ErrUnexpectedEOF
	}
	if opts.ShardSelector == "" || s.ignores.Load() {
		return func(runtime.Object) bool { return true }, nil
	}
	ranges := shardRange.FindAllStringSubmatch(opts.ShardSelector, -1)
	if shardRange.ReplaceAllString(opts.ShardSelector, "") != "" {
		return nil, errors.New("invalid shard selector: " + opts.ShardSelector)
	}
	s.asked.Add(1)
	if s.refusal != nil {
		return nil, s.refusal
	}
	return func(obj runtime.Object) bool {
		cm, ok := obj.(*corev1.ConfigMap)
		if !ok || cm.Name == "" { // a bookmark
			return true
		}
		h := fnv.New64a()
		_, _ = h.Write([]byte(cm.Namespace))
		at := fmt.Sprintf("0x%016x", h.Sum64())
		for _, r := range ranges {
			start, end := r[1], r[2]
			if at >= start && (at < end || len(end) > len(at)) {
				return true
			}
		}
		return false
	}, nil
}

func (s *selecting) List(opts metav1.ListOptions) (runtime.Object, error) {
	wanted, err := s.filter(opts)
	if err != nil {
		return nil, err
	}
	list, err := s.configMaps.List(opts)
	if all, ok := list.(*corev1.ConfigMapList); ok {
		chosen := *all
		chosen.Items = nil
		for i := range all.Items {
			if wanted(&all.Items[i]) {
				chosen.Items = append(chosen.Items, all.Items[i])
			}
		}
		list = &chosen
	}
	return list, err
}

func (s *selecting) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	wanted, err := s.filter(opts)
	if err != nil {
		return nil, err
	}
	w, err := s.configMaps.Watch(opts)
	if err != nil {
		return nil, err
	}
	selected := &selectedWatch{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	go selected.forward(wanted)
	return selected, nil
}

// selectedWatch has some events of another watch. The Filter of package watch does not end by Stop while
// no test reads.
type selectedWatch struct {
	watch.Interface
	events  chan watch.Event
	once    sync.Once
	stopped chan struct{}
}

func (s *selectedWatch) forward(wanted func(runtime.Object) bool) {
	defer close(s.events)
	for e := range s.Interface.ResultChan() {
		if e.Type != watch.Error && !wanted(e.Object) {
			continue
		}
		select {
		case s.events <- e:
		case <-s.stopped:
			return
		}
	}
}

func (s *selectedWatch) ResultChan() <-chan watch.Event { return s.events }

func (s *selectedWatch) Stop() {
	s.once.Do(func() { close(s.stopped) })
	s.Interface.Stop()
}
