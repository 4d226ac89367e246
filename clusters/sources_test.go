package clusters_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/clusters"
	"github.com/customcacheinformer/informer/informertest"
)

func secret(namespace, name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"fleet": "a"}}, Data: data}
}

func TestClustersFollowTheirSecrets(t *testing.T) {
	for _, key := range []string{"kubeconfig", "value"} {
		synctest.Test(t, func(t *testing.T) {
			data := func(text []byte) map[string][]byte { return map[string][]byte{key: text} }
			unlabelled := secret("fleet", "unlabelled", data(kubeconfig("north", "token")))
			unlabelled.Labels = nil
			src := informertest.NewSource(unlabelled, secret("other", "south", data(kubeconfig("south", "token"))),
				secret("fleet", "east", data(kubeconfig("east", "token1"))), secret("fleet", "bad", data([]byte("s3cret: ["))),
				secret("fleet", "nokey", map[string][]byte{"other": kubeconfig("west", "s3cret")}))
			clientset := fake.NewClientset()
			src.Serve(&clientset.Fake, "secrets", &corev1.SecretList{})
			f := &fleet{follower: &follower{}, systems: map[string]string{"east": "1", "moved": "1"}}
			source := clusters.Secrets{Client: clientset.CoreV1(), Namespace: "fleet", Selector: "fleet=a", Key: strings.TrimPrefix(key, "kubeconfig")}
			f.provider = must(clusters.New(source, clusters.Options{Name: "fleet", UID: f.uid, ErrorHandler: f.handle}, f.follower))
			stop := informertest.Run(t, f.provider)
			f.expect(t, "engage east token1 A")
			errs := f.report()
			if strings.Contains(errs, "s3cret") || strings.Count(errs, "given up") != 2 || !strings.Contains(errs, "no key "+key) {
				t.Errorf("the errors are:\n%s", errs)
			}

			src.Apply(secret("fleet", "bad", data(kubeconfig("bad", "token"))))
			src.Apply(secret("fleet", "east", map[string][]byte{key: kubeconfig("moved", "token2"), "more": nil}))
			f.next()
			f.expect(t, "engage bad token B", "replace east token2 A")
			moved := secret("fleet", "east", map[string][]byte{key: kubeconfig("moved", "token2")})
			src.Apply(moved) // the kubeconfig is the same
			src.Apply(secret("fleet", "bad", data([]byte("s3cret: ["))))
			f.next()
			f.expect(t)
			moved.Labels = nil // the selector no longer selects it
			src.Apply(moved)
			must(src.Delete(types.NamespacedName{Namespace: "fleet", Name: "bad"}))
			f.next()
			f.expect(t, "disengage bad", "disengage east")

			for _, name := range []string{"c1", "c2"} { // they are compared with clusters that do not answer
				src.Apply(secret("fleet", name, data(kubeconfig("east", name))))
				synctest.Wait()
				src.Apply(secret("fleet", name, data(kubeconfig("away", name))))
			}
			src.Apply(secret("fleet", "new", data(kubeconfig("east", "token"))))
			time.Sleep(time.Second)
			f.expect(t, "engage c1 c1 A", "engage c2 c2 A", "engage new token A")

			f.fails(func(string) error { return errors.New("full") })
			src.Apply(secret("fleet", "last", data(kubeconfig("east", "token"))))
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if n := len(f.calls); n < 7 || n > 12 {
				t.Errorf("the follower was called %d times in five minutes", n)
			}
			if h := f.health(); h.Name != "fleet" || len(h.Clusters) != 5 || h.Clusters[2].Failed != "full" || h.Clusters[4].Name != "nokey" {
				t.Errorf("Health is %+v", h)
			}
			src.Apply(secret("fleet", "new", data(kubeconfig("away", "token"))))
			time.Sleep(time.Second)
			f.report()
			stop() // while clusters are compared
			if errs := f.report(); errs != "" {
				t.Errorf("the end is reported: %s", errs)
			}
		})
	}
}

func TestSecretsThatCannotBeListedAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource[*corev1.Secret]()
		clientset := fake.NewClientset()
		src.Serve(&clientset.Fake, "secrets", &corev1.SecretList{})
		src.Fail("list", errors.New("no rights"), -1)
		src.Fail("watch", errors.New("no rights"), -1)
		source := clusters.Secrets{Client: clientset.CoreV1(), Namespace: "fleet", Selector: "fleet"}
		p := must(clusters.New(source, clusters.Options{ErrorHandler: (&fleet{}).handle}, &follower{}))
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var running sync.WaitGroup
		running.Go(func() { _ = p.Run(ctx) })
		time.Sleep(time.Second)
		if h := p.MemberHealth().(clusters.Health); !strings.Contains(h.SourceError, "no rights") || !strings.Contains(h.Ready().Error(), "no rights") {
			t.Errorf("Health is %+v", h)
		}
		if err := p.WaitForSync(t.Context()); !errors.Is(err, informer.ErrStopped) {
			t.Errorf("WaitForSync returns %v", err)
		}
		running.Wait()
	})
}

// A kubelet mounts a Secret as links to files in a directory that it replaces as a whole.
func TestAMountedSecretIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.answer("east", "1")
		version := func(name, token string) error {
			return errors.Join(os.Mkdir(filepath.Join(f.dir, name), 0o700),
				os.WriteFile(filepath.Join(f.dir, name, "east.yaml"), kubeconfig("east", token), 0o600),
				os.Symlink(name, filepath.Join(f.dir, "..data_tmp")),
				os.Rename(filepath.Join(f.dir, "..data_tmp"), filepath.Join(f.dir, "..data")))
		}
		err := errors.Join(version("..2026_1", "token1"), os.Symlink("..data/east.yaml", filepath.Join(f.dir, "east.yaml")))
		informertest.Run(t, f.provider)
		f.expect(t, "engage east token1 A")
		err = errors.Join(err, version("..2026_2", "token2"), os.RemoveAll(filepath.Join(f.dir, "..2026_1")))
		f.next()
		f.expect(t, "replace east token2 A")
		f.write(t, "..data", nil) // the link leads nowhere for a moment
		f.next()
		f.expect(t)
		f.write(t, "east.yaml", nil)
		f.next()
		if f.expect(t, "disengage east"); err != nil {
			t.Error(err)
		}
	})
}

func TestOddFilesDoNoHarm(t *testing.T) {
	follow(t, func(t *testing.T, f *fleet) {
		outside := filepath.Join(t.TempDir(), "outside")
		err := errors.Join(os.WriteFile(outside, kubeconfig("outside", "token"), 0o600),
			os.Symlink(outside, filepath.Join(f.dir, "link.yaml")),
			os.Symlink(".", filepath.Join(f.dir, "link2.yaml")),
			os.Mkdir(filepath.Join(f.dir, "directory.yaml"), 0o700))
		if err != nil {
			t.Fatal(err)
		}
		f.write(t, "No_Name.yaml", kubeconfig("name", "token"))
		f.write(t, ".hidden.yaml", kubeconfig("hidden", "token"))
		f.write(t, ".yaml", kubeconfig("hidden", "token"))
		f.write(t, "east.yml", kubeconfig("east", "token2"))
		f.next()
		f.expect(t)
		var names []string
		for _, c := range f.health().Clusters {
			if names = append(names, c.Name); c.Refused == "" {
				t.Errorf("%s is not refused", c.Name)
			}
		}
		if got := strings.Join(names, " "); got != "No_Name east link link2" {
			t.Errorf("the names are %s", got)
		}
	})
}

func TestADirectoryThatCannotBeReadChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.answer("east", "1")
		f.write(t, "east.yaml", kubeconfig("east", "token1"))
		err := os.Rename(f.dir, f.dir+"-away")
		var running sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		running.Go(func() { _ = f.provider.Run(ctx) })
		f.next()
		f.expect(t)
		if h, errs := f.health(), f.report(); h.Synced || !strings.Contains(h.Ready().Error(), "no such file") || strings.Count(errs, "no such file") != 1 {
			t.Errorf("Health is %+v, and the errors are %s", h, errs)
		}
		err = errors.Join(err, os.Rename(f.dir+"-away", f.dir), f.provider.WaitForSync(ctx), os.Rename(f.dir, f.dir+"-away"))
		f.next()
		f.expect(t, "engage east token1 A")
		if h := f.health(); h.SourceError == "" || h.Ready() != nil {
			t.Errorf("Health is %+v", h)
		}
		if stop(); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
}

func TestAFollowerOfSecretsIsCalledAgainAfterAnErrorThatIsPermanent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(secret("fleet", "east", map[string][]byte{"kubeconfig": kubeconfig("east", "token1")}))
		clientset := fake.NewClientset()
		src.Serve(&clientset.Fake, "secrets", &corev1.SecretList{})
		f := &fleet{follower: &follower{}, systems: map[string]string{"east": "1"}}
		failed := false
		f.fails(func(call string) error {
			if failed || !strings.HasPrefix(call, "engage") {
				return nil
			}
			failed = true
			return informer.ErrNotEngaged
		})
		source := clusters.Secrets{Client: clientset.CoreV1(), Namespace: "fleet", Selector: "fleet=a"}
		f.provider = must(clusters.New(source, clusters.Options{Name: "fleet", UID: f.uid, ErrorHandler: f.handle}, f.follower))
		informertest.Run(t, f.provider)
		time.Sleep(time.Hour)
		f.expect(t, "engage east token1 A", "engage east token1 A")
	})
}
