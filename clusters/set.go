package clusters

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Follower is notified when clusters join and leave the set of a [Provider]. The Provider calls the methods from several
// goroutines, and only while it runs. Calls for one name come one after the other. The methods must not block. A call that
// returns an error is repeated after a pause, perhaps with a newer kubeconfig.
type Follower interface {
	// Engage is called for a cluster that has joined the set. The follower may change config. uid is never empty.
	Engage(name string, config *rest.Config, uid types.UID) error
	// Replace is called when the configuration of an engaged cluster changes. The follower may change config. If uid is the
	// same as in the last call, the name still belongs to the same cluster. Otherwise it belongs to another cluster now.
	Replace(name string, config *rest.Config, uid types.UID) error
	// Disengage is called when a cluster has left the set.
	Disengage(name string) error
}

const (
	readTimeout = 10 * time.Second // for the UID of one cluster
	maxReads    = 8                // clusters that are asked for their UIDs at a time
	// A cluster whose UID cannot be read is asked again after firstPause, then after twice as long, and so on.
	firstPause, lastPause = time.Minute, 10 * time.Minute
)

var errNoAnswer = errors.New("the cluster of the changed kubeconfig does not answer, or refuses the credentials: the last kubeconfig stays in use")

// set is the set of clusters. The calls of update for one name come one after the other.
type set struct {
	followers  []Follower
	allow      Allow
	uid        func(ctx context.Context, config *rest.Config) (types.UID, error)
	reads      chan struct{}   // has an element for each call of uid that is under way
	ctx        context.Context // of Run
	background sync.WaitGroup  // the goroutines of learn
	mu         sync.Mutex      // protects the rest; no follower is called while it is held
	clusters   map[string]*cluster
}

// cluster is what the set knows of one name. Only update writes its fields, except system, so update reads them without
// the lock.
type cluster struct {
	current     *setting    // nil before the first one, and after the cluster has left
	given       []*setting  // by follower: the setting that it has; nil if it has not engaged the cluster
	system      types.UID   // the UID of the namespace kube-system; "" if it is not known
	used        []types.UID // the UIDs that followers have had under this name
	bad, failed error       // why the present kubeconfig is refused, and the reason to try again
}

// setting is a kubeconfig in use. It never changes.
type setting struct {
	sum    [sha256.Size]byte // of the kubeconfig
	config *rest.Config
	place  types.UID          // a hash of the address and the CA
	uid    types.UID          // the UID that followers get
	stop   context.CancelFunc // ends learn
}

func (s *set) cluster(name string) *cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[name]
	if c == nil {
		c = &cluster{given: make([]*setting, len(s.followers))}
		s.clusters[name] = c
	}
	return c
}

func (s *set) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.clusters))
}

// update makes the followers use kubeconfig. If kubeconfig is nil, the cluster leaves, unless bad is the reason why the
// kubeconfig cannot be read. If the followers have another kubeconfig, update blocks while it compares the clusters.
// refused is why the followers keep their kubeconfig: only another kubeconfig helps. If failed is not nil, update must
// be called again. isNew is true if the errors differ from those of the last call.
func (s *set) update(ctx context.Context, name string, kubeconfig []byte, bad error) (isNew bool, refused, failed error) {
	c, sum := s.cluster(name), sha256.Sum256(kubeconfig)
	switch refused = bad; {
	case bad != nil:
	case kubeconfig == nil:
		s.put(c, nil, "")
	case c.current == nil || c.current.sum != sum:
		var config *rest.Config
		if config, refused = Config(kubeconfig, s.allow); refused == nil {
			failed = s.change(ctx, c, &setting{sum: sum, config: config, place: placeOf(config)})
		}
	}
	failed = errors.Join(failed, s.call(name, c))
	s.mu.Lock()
	defer s.mu.Unlock()
	if kubeconfig == nil && bad == nil && failed == nil {
		delete(s.clusters, name)
	}
	if ctx.Err() == nil { // otherwise the errors may be those of the end
		isNew = text(refused) != text(c.bad) || text(failed) != text(c.failed)
		c.bad, c.failed = refused, failed
	}
	return isNew, refused, failed
}

// settle makes the followers drop the clusters that they know from an earlier run and that are not in the first set.
func (s *set) settle() {
	for _, follower := range s.followers {
		if f, ok := follower.(interface{ settle(names []string) }); ok {
			f.settle(s.names())
		}
	}
}

// call brings each follower from the setting that it has to the current one. When a cluster leaves, the followers are
// called in reverse order, so that the first follower has it as long as any other.
func (s *set) call(name string, c *cluster) error {
	var errs []error
	for i := range s.followers {
		if c.current == nil {
			i = len(s.followers) - 1 - i
		}
		var err error
		follower := s.followers[i]
		switch now, has := c.current, c.given[i]; {
		case now == has:
		case now == nil:
			err = follower.Disengage(name)
		case has == nil:
			err = follower.Engage(name, copyOf(now.config), now.uid)
		default:
			err = follower.Replace(name, copyOf(now.config), now.uid)
		}
		if err == nil {
			c.given[i] = c.current
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// change makes next the current setting of c, and chooses its uid. The uid stays if the UID of kube-system is the same or,
// if it is not known, the address and the CA. change returns an error if ctx ends, or if a new address does not answer.
func (s *set) change(ctx context.Context, c *cluster, next *setting) error {
	var system types.UID
	same := false
	if last := c.current; last != nil {
		s.mu.Lock()
		known := c.system
		s.mu.Unlock()
		moved, answered := next.place != last.place, false
		if moved || known != "" { // otherwise the answer would decide nothing
			system, answered = s.read(ctx, next.config)
		}
		switch same = !moved; {
		case ctx.Err() != nil:
			return ctx.Err()
		case moved && !answered: // perhaps a typing mistake in the address
			return errNoAnswer
		case system != "" && known != "":
			same = system == known
		}
		if same {
			next.uid, system = last.uid, cmp.Or(system, known)
		}
	}
	if !same {
		// A UID that was used here before could be the one that a follower has, if it has missed a change.
		next.uid = next.place
		for n := 2; slices.Contains(c.used, next.uid); n++ {
			next.uid = types.UID(fmt.Sprintf("%s#%d", next.place, n))
		}
		c.used = append(c.used, next.uid)
	}
	s.put(c, next, system)
	return nil
}

// put makes next the current setting of c. next is nil if the cluster leaves.
func (s *set) put(c *cluster, next *setting, system types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.current != nil {
		c.current.stop()
	}
	if c.current, c.system = next, system; next != nil {
		var ctx context.Context
		if ctx, next.stop = context.WithCancel(s.ctx); system == "" {
			s.background.Go(func() { s.learn(ctx, c, next) })
		}
	}
}

// learn reads the UID of kube-system until it is known, or until ctx ends.
func (s *set) learn(ctx context.Context, c *cluster, of *setting) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		if system, _ := s.read(ctx, of.config); system != "" {
			s.mu.Lock()
			defer s.mu.Unlock()
			if c.current == of {
				c.system = system
			}
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// read waits for its turn, and returns the UID of kube-system, or "" if it is not known. answered is true if the cluster
// accepts the credentials: an answer of 403 or 404 does not show the UID, but counts, and 401 does not.
func (s *set) read(ctx context.Context, config *rest.Config) (uid types.UID, answered bool) {
	select {
	case s.reads <- struct{}{}:
	case <-ctx.Done():
		return "", false
	}
	defer func() { <-s.reads }()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	uid, err := s.uid(ctx, copyOf(config))
	if err != nil { // the error is dropped, because it may quote the address
		return "", apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
	}
	return uid, true
}

// copyOf returns a copy of config that its receiver may change. rest.CopyConfig shares what pointers and maps lead to.
func copyOf(config *rest.Config) *rest.Config {
	own := rest.CopyConfig(config)
	own.AuthProvider, own.ExecProvider = own.AuthProvider.DeepCopy(), own.ExecProvider.DeepCopy()
	own.Impersonate.Groups, own.Impersonate.Extra = slices.Clone(own.Impersonate.Groups), maps.Clone(own.Impersonate.Extra)
	return own
}

// placeOf returns a hash of the address and the CA. It uses %q so that different values never give the same text.
func placeOf(config *rest.Config) types.UID {
	parts := fmt.Sprintf("%q %q %q", strings.TrimRight(config.Host, "/"), config.CAFile, config.CAData)
	return types.UID(fmt.Sprintf("host:%x", sha256.Sum256([]byte(parts))))
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
