package valkey_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	client "github.com/valkey-io/valkey-go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/valkey"
	"github.com/customcacheinformer/informer/store/valkey/internal/server"
)

func TestOptionsThatCannotBeUsedAreErrorsThatNameTheField(t *testing.T) {
	srv := server.Start(t)
	opening := func(c client.Client, example runtime.Object, opts valkey.Options) error {
		_, err := valkey.Open(t.Context(), c, example, opts)
		return err
	}
	reading := func(c client.Client, example runtime.Object, identity store.Identity) error {
		_, err := valkey.NewSource(c, example, identity)
		return err
	}
	_, noClient := valkey.LeaseToken(t.Context(), nil, "lease", "me")
	c, pod, noKind := srv.Client(), &corev1.Pod{}, store.Identity{Cluster: "c"}
	for want, err := range map[string]error{
		"client":                    opening(nil, pod, valkey.Options{}),
		"example":                   opening(c, nil, valkey.Options{}),
		"Options.Identity.Selector": opening(c, pod, valkey.Options{Identity: store.Identity{Cluster: "c", Selector: "\xff"}}),
		"Options.Writer":            opening(c, pod, valkey.Options{Writer: "\xff"}),
		"valkey: open: Options.Identity.Cluster is empty: set it to the UID": opening(c, pod, valkey.Options{Identity: store.Identity{Resource: "pods"}}),
		"Options.Identity.Resource is empty, and *unstructured.Unstructured": opening(c, &unstructured.Unstructured{}, valkey.Options{Identity: noKind}),

		"the client is nil": reading(nil, pod, store.Identity{}),
		"the example":       reading(c, nil, store.Identity{}),
		"Identity.Cluster":  reading(c, pod, store.Identity{Cluster: "\xff"}),
		"valkey: source: Identity.Cluster is empty: set it to the UID": reading(c, pod, store.Identity{Resource: "pods"}),
		"Identity.Resource is empty, and *v1.PartialObjectMetadata":    reading(c, &metav1.PartialObjectMetadata{}, noKind),

		"LeaseToken: the client": noClient,
	} {
		testkit.ErrorContains(t, err, want)
	}
	if keys := srv.Do("DBSIZE"); keys != "0" {
		t.Errorf("there are %s keys on the server, want none", keys)
	}
}

func TestStoresOfDifferentIdentitiesOrTypesShareNothing(t *testing.T) {
	srv := server.Start(t)
	c := srv.Client()
	stores := map[string]*valkey.Store{"another type": open(t, c, &corev1.Pod{}, valkey.Options{Identity: store.Identity{Cluster: "c"}})}
	for _, identity := range []store.Identity{
		{Cluster: "c"}, {Cluster: "a"}, {Cluster: "c", Resource: "a"}, {Cluster: "c", Namespace: "a"}, {Cluster: "c", Selector: "a"},
		{Cluster: "c", Version: "a"}, {Cluster: "a", Resource: "b"}, {Cluster: "ab"},
	} {
		s := open(t, c, sample.ConfigMap("", ""), valkey.Options{Identity: identity})
		if all := stored(t, s); len(all) > 0 {
			t.Errorf("the new store of %+v has %v", identity, all)
		}
		must(t, add(s, sample.ConfigMap("a", "b")))
		stores[identity.Cluster+"/"+identity.Resource+"/"+identity.Namespace+"/"+identity.Selector+"/"+identity.Version] = s
	}
	if all := stored(t, stores["another type"]); len(all) > 0 {
		t.Errorf("a store of another type has %v", all)
	}
	if n := len(strings.Fields(srv.Do("KEYS", "*:about"))); n != len(stores) {
		t.Errorf("there are %d stores on the server, want %d", n, len(stores))
	}
}

func TestAClientMayUseTLSAndAPassword(t *testing.T) {
	dir := t.TempDir()
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	must(t, err)
	for name, content := range map[string][]byte{"cert.pem": certificate, "key.pem": key} {
		must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	srv := server.StartWith(t, client.ClientOption{Password: "secret", TLSConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
		"--tls-cert-file", filepath.Join(dir, "cert.pem"), "--tls-key-file", filepath.Join(dir, "key.pem"), "--tls-auth-clients", "no",
		"--requirepass", "secret")
	identity := newIdentity()
	s := open(t, srv.Client(), sample.ConfigMap("", ""), valkey.Options{Identity: identity})
	must(t, put(s, "b", "5"))
	wantListed(t, newSource(t, srv.Client(), identity), 1)
}

// TestAUserNeedsOnlyTheRightsInTheDocumentation takes the rights from doc.go.
func TestAUserNeedsOnlyTheRightsInTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	must(t, err)
	_, command, found := strings.Cut(string(text), "//\tACL SETUSER ")
	command, _, _ = strings.Cut(command, "\n")
	srv := server.Start(t)
	if answer := srv.Do(append([]string{"ACL", "SETUSER"}, strings.Fields(command)...)...); !found || answer != "OK" {
		t.Fatalf("ACL SETUSER %s: %s", command, answer)
	}
	user, err := client.NewClient(client.ClientOption{
		InitAddress: []string{srv.Addr()}, Username: "operator", Password: "PASSWORD", DisableCache: true, ForceSingleClient: true,
	})
	must(t, err)
	t.Cleanup(user.Close)
	identity := newIdentity()
	s := open(t, user, sample.ConfigMap("", ""), valkey.Options{Identity: identity})
	source := newSource(t, user, identity)
	must(t, put(s, "b", "5"))
	wantListed(t, source, 1)
	w, err := source.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "5"})
	must(t, err)
	defer w.Stop()
	gone := at(sample.ConfigMap("a", "b"), "5")
	if err := errors.Join(
		s.Apply(t.Context(), []informer.Change{deleting(gone)}, "6"),
		s.Forget(t.Context(), map[string][]types.UID{"a/b": {gone.GetUID()}}),
	); err != nil {
		t.Fatal(err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Deleted {
		t.Errorf("the watch tells %v", e)
	}
	_, listed := s.Tombstones(t.Context())
	_, written := s.Status(t.Context())
	_, read := source.Status(t.Context())
	noError(t, errors.Join(listed, written, read))
	if err := user.Do(t.Context(), user.B().Get().Key("other").Build()).Error(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("the user may read the key of another program: %v", err)
	}
}

// FuzzAnObjectIsStoredUnderItsKeyAlone stores an object whose names, UID and contents are arbitrary. They
// reach the scripts as arguments, and must be nothing else there.
func FuzzAnObjectIsStoredUnderItsKeyAlone(f *testing.F) {
	srv := server.Start(f)
	c := srv.Client()
	for _, text := range []string{"a", "-", "+", "(", "[a", "\x00", "\xff", "a\r\nFLUSHALL\r\n", "1:a", "put", "forget", "'..redis.call('FLUSHALL')..'", strings.Repeat("a", 20<<10)} {
		f.Add(text, text, text, text)
	}
	f.Fuzz(func(t *testing.T, namespace, name, uid, value string) {
		s := open(t, c, &corev1.ConfigMap{}, valkey.Options{Identity: newIdentity()})
		beside := sample.ConfigMap("beside", "it")
		must(t, s.Apply(t.Context(), []informer.Change{adding(beside), deleting(beside), adding(beside)}, "1"))
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: value}, Data: map[string]string{value: value}}
		obj.UID = types.UID(uid)
		err := s.Apply(t.Context(), []informer.Change{adding(obj), deleting(obj), adding(obj)}, "2")
		key := cache.MetaObjectToName(obj).String()
		want := 2
		if err != nil || key == "beside/it" {
			want = 1
		}
		if all := stored(t, s); len(all) != want {
			t.Errorf("there is %v, want %d (%v)", all, want, err)
		}
		if err != nil {
			return
		}
		got, exists, err := s.Get(t.Context(), key)
		if err != nil || !exists || got.(*corev1.ConfigMap).Name != name || got.(*corev1.ConfigMap).Data[value] != value {
			t.Errorf("%q is read as %v, %t, %v", key, got, exists, err)
		}
		if tombstones, err := s.Tombstones(t.Context()); err != nil || len(tombstones) != 2 {
			t.Errorf("there are %d tombstones, want 2, %v", len(tombstones), err)
		}
		if got, _, err := s.Get(t.Context(), "beside/it"); err != nil || got == nil {
			t.Errorf("the object beside it is %v, %v", got, err)
		}
	})
}

func TestASourceRefusesRequestsThatItCannotServe(t *testing.T) {
	srv, identity := server.Start(t), newIdentity()
	filled(t, srv, identity)
	source := newSource(t, srv.Client(), identity)
	for name, opts := range map[string]metav1.ListOptions{
		"labels": {LabelSelector: "a=b", ResourceVersion: "7"}, "fields": {FieldSelector: "a=b", ResourceVersion: "7"},
	} {
		if _, err := source.ListWithContext(t.Context(), opts); err == nil {
			t.Errorf("a list by %s is served", name)
		}
		if _, err := source.Watch(opts); err == nil {
			t.Errorf("a watch by %s is served", name)
		}
	}
	for name, opts := range map[string]metav1.ListOptions{
		"no version": {}, "0": {ResourceVersion: "0"}, "a word": {ResourceVersion: "new"}, "the first state": {ResourceVersion: "7", SendInitialEvents: ptr.To(true)},
	} {
		if _, err := source.Watch(opts); err == nil {
			t.Errorf("a watch from %s is served", name)
		}
	}
	if list, err := source.List(metav1.ListOptions{Limit: 1, ResourceVersion: "7"}); err != nil || list.(*metav1.List).ResourceVersion != "7" {
		t.Errorf("a probe: %v, %v", list, err)
	}
	for _, version := range []string{"3", "8"} {
		if list, err := source.List(metav1.ListOptions{Limit: 1, ResourceVersion: version}); err == nil {
			t.Errorf("a probe of version %s: %v", version, list)
		}
	}
	if _, err := source.List(metav1.ListOptions{Continue: "more"}); err == nil {
		t.Error("a list that goes on is served")
	}
	st, err := source.Status(t.Context())
	if err != nil || st.Objects != 2 || st.Tombstones != 1 || st.Log != 3 || st.Version != "7" {
		t.Errorf("the status: %+v, %v", st, err)
	}
}

func TestAnObjectThatCannotBeStoredIsRefused(t *testing.T) {
	srv := server.Start(t)
	s := open(t, srv.Client(), &corev1.ConfigMap{}, valkey.Options{Identity: newIdentity()})
	large := sample.ConfigMap("a", "b").(*corev1.ConfigMap)
	large.BinaryData = map[string][]byte{"a": make([]byte, 33<<20)}
	for name, obj := range map[string]informer.AnyObject{
		"nil": nil, "a nil pointer": (*corev1.ConfigMap)(nil), "another type": &corev1.Pod{}, "too large": large,
	} {
		change := informer.Change{Entry: informer.Entry{Key: "a/b", Object: obj}}
		if err := s.Apply(t.Context(), []informer.Change{change}, "1"); !isPermanent(err) {
			t.Errorf("Apply of an object that is %s: %v, want a permanent error", name, err)
		}
	}
	if err := add(s, &corev1.ConfigMap{}); !isPermanent(err) {
		t.Errorf("Apply of an object without a key: %v, want a permanent error", err)
	}
	half := large.DeepCopy()
	half.BinaryData["a"] = make([]byte, 17<<20)
	other := half.DeepCopy()
	other.Name = "c"
	if err := s.Apply(t.Context(), []informer.Change{adding(half), adding(other)}, "1"); !isPermanent(err) {
		t.Errorf("changes that are too large together: %v, want a permanent error", err)
	}
	if err := errors.Join(s.Apply(t.Context(), []informer.Change{adding(half)}, ""), s.Apply(t.Context(), []informer.Change{adding(other)}, "1")); err != nil {
		t.Errorf("each alone: %v", err)
	}
}

func TestAReaderDoesNotGoOnInALogThatWasTrimmed(t *testing.T) {
	srv, identity := server.Start(t), newIdentity()
	s := open(t, srv.Client(), &corev1.ConfigMap{}, valkey.Options{Identity: identity, Log: 1})
	source := newSource(t, srv.Client(), identity)
	// The server trims many entries at once.
	for n := 5; n < 500; n++ {
		version := text(uint64(n))
		must(t, put(s, version, version))
		w, err := source.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "5"})
		if apierrors.IsResourceExpired(err) {
			_, probed := source.ListWithContext(t.Context(), metav1.ListOptions{Limit: 1, ResourceVersion: "5"})
			if !apierrors.IsResourceExpired(probed) {
				t.Errorf("after %d changes a watch and a probe get %v and %v", n-5, err, probed)
			}
			return
		}
		must(t, err)
		w.Stop()
	}
	t.Error("a watch from the first version begins after 500 changes")
}
