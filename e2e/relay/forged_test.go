package relay_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	fronts "github.com/customcacheinformer/informer/e2e/internal/front"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/relay"
)

// reviews is an API server that answers every SubjectAccessReview with no.
type reviews struct {
	*httptest.Server
	mu    sync.Mutex
	asked []authorizationv1.SubjectAccessReviewSpec
}

func newReviews(t *testing.T) *reviews {
	r := &reviews{}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(r.review))
	t.Cleanup(r.Close)
	return r
}

func (r *reviews) review(w http.ResponseWriter, request *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.asked = append(r.asked, review.Spec)
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // its status allows nothing
}

// delegating returns the change of options that has a server answer reviews.
func delegating(t *testing.T, to *httptest.Server, authenticates bool) func(*relay.Options) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := apiserver.WriteKubeconfig(fronts.ConfigOf(to), file); err != nil {
		t.Fatal(err)
	}
	return func(opts *relay.Options) {
		opts.Authorization = genericoptions.NewDelegatingAuthorizationOptions()
		opts.Authorization.RemoteKubeConfigFile = file
		if authenticates {
			opts.Authentication = genericoptions.NewDelegatingAuthenticationOptions()
			opts.Authentication.RemoteKubeConfigFile = file
			opts.Authentication.SkipInClusterLookup = true
			opts.Authentication.TokenRequestTimeout = 2 * time.Second
		}
	}
}

func TestHeadersDoNotChangeTheUser(t *testing.T) {
	w := newWorld(t)
	w.create(1)
	for name, authenticates := range map[string]bool{"without authentication": false, "with authentication": true} {
		t.Run(name, func(t *testing.T) {
			reviews := newReviews(t)
			w := &world{T: stage.T{T: t}, server: w.server, front: w.front, leases: w.leases}
			r := w.relay(w.front.Config(), "", delegating(t, reviews.Server, authenticates))
			for _, headers := range [][]string{
				nil,
				{"X-Remote-User: admin", "X-Remote-Group: system:masters"},
				{"X-Remote-User: system:apiserver", "X-Remote-Group: system:masters", "X-Remote-Extra-Scopes: all"},
				{"Impersonate-User: admin", "Impersonate-Group: system:masters"},
				{"X-Forwarded-User: admin", "X-Forwarded-For: 127.0.0.1"},
			} {
				if a := w.send(r.config, rawRequest("GET", leasesPath, headers...)); a.code != http.StatusForbidden {
					t.Errorf("%q: got %d, want 403: %.300s", headers, a.code, a.body)
				}
			}
			reviews.mu.Lock()
			defer reviews.mu.Unlock()
			for _, spec := range reviews.asked {
				if spec.User != "system:anonymous" {
					t.Errorf("the API server was asked whether %q of %q may %+v", spec.User, spec.Groups, spec.ResourceAttributes)
				}
			}
			if len(reviews.asked) == 0 {
				t.Error("the API server was not asked")
			}
		})
	}
}

// tokens is an API server that knows one token, that of an agent. The agent may impersonate a reader. Both may list Leases.
func tokens(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if strings.Contains(r.URL.Path, "tokenreviews") {
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		review.Status.Authenticated, review.Status.User.Username = review.Spec.Token == "agent", "agent"
		_ = json.NewEncoder(w).Encode(review)
		return
	}
	var review authorizationv1.SubjectAccessReview
	_ = json.NewDecoder(r.Body).Decode(&review)
	asked := review.Spec.ResourceAttributes
	review.Status.Allowed = asked.Verb == "list" && asked.Resource == "leases" ||
		review.Spec.User == "agent" && asked.Verb == "impersonate" && asked.Resource == "users" && asked.Name == "reader"
	_ = json.NewEncoder(w).Encode(review)
}

// authenticated is delegating to a server of its own.
func authenticated(t *testing.T, handler http.HandlerFunc) func(*relay.Options) {
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return delegating(t, server, true)
}

func TestAClientImpersonatesOnlyWhomItMay(t *testing.T) {
	w := newWorld(t)
	w.create(1)
	r := w.relay(w.front.Config(), "", authenticated(t, tokens))
	for _, test := range []struct {
		headers []string
		code    int
	}{
		{[]string{"Authorization: Bearer agent"}, http.StatusOK},
		{[]string{"Authorization: Bearer agent", "Impersonate-User: reader"}, http.StatusOK},
		{[]string{"Authorization: Bearer agent", "Impersonate-User: admin"}, http.StatusForbidden},
		{[]string{"Authorization: Bearer agent", "Impersonate-User: reader", "Impersonate-Group: system:masters"}, http.StatusForbidden},
		{[]string{"Authorization: Bearer other"}, http.StatusUnauthorized},
		{[]string{"Impersonate-User: reader"}, http.StatusForbidden},
	} {
		if a := w.send(r.config, rawRequest("GET", leasesPath, test.headers...)); a.code != test.code {
			t.Errorf("%q: got %d, want %d: %.300s", test.headers, a.code, test.code, a.body)
		}
	}
}

func TestReviewsThatFailAreAnsweredInTime(t *testing.T) {
	w := newWorld(t)
	w.create(1)
	for name, handler := range map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
		"hang": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // so that the end of the client is noticed
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{T: stage.T{T: t}, server: w.server, front: w.front, leases: w.leases}
			r := w.relay(w.front.Config(), "", authenticated(t, handler))
			for _, path := range []string{leasesPath, leasesPath + "?watch=true"} {
				begun := time.Now()
				a := w.send(r.config, rawRequest("GET", path, "Authorization: Bearer agent"))
				if took := time.Since(begun); a.code != http.StatusUnauthorized || took > 30*time.Second {
					t.Errorf("%s: got %d after %v", path, a.code, took)
				}
			}
		})
	}
}
