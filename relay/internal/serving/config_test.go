package serving

import (
	"context"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/jsonpath"
)

func secrets() Resource {
	return Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("secrets"), Kind: "Secret", Namespaced: true, Storage: newMemory(1)}
}

func TestSecretsAreServedOnlyIfTheyAreAllowed(t *testing.T) {
	f := &fixture{pods: newMemory(1), widgets: newMemory(1), gadgets: newMemory(1)}
	config := f.config()
	config.Resources = append(config.Resources, secrets())
	if server, err := New(config); err == nil || !strings.Contains(err.Error(), "Secrets") {
		t.Errorf("got %v, %v, want an error", server, err)
	}
	storage := newMemory(1)
	g := serve(t, func(c *Config) {
		secrets := secrets()
		secrets.Storage = storage
		c.Resources, c.AllowSecrets = append(c.Resources, secrets), true
	})
	storage.set(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default"}})
	g.settle(t)
	g.get(t, "/api/v1/secrets", http.StatusOK)
}

func TestAConfigurationThatCannotBeUsedIsAnError(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"Generic is required":             func(c *Config) { c.Generic = nil },
		"SecureServing is required":       func(c *Config) { c.Generic.ExternalAddress = "" },
		"no resource":                     func(c *Config) { c.Resources = nil },
		"appears twice":                   func(c *Config) { c.Resources = append(c.Resources, c.Resources[0]) },
		"Kind are required":               func(c *Config) { c.Resources[0].Kind = "" },
		"no subresource":                  func(c *Config) { c.Resources[0].Resource = "pods/status" },
		"must be in lower case":           func(c *Config) { c.Resources[0].Resource = "Secrets" },
		"Storage is required":             func(c *Config) { c.Resources[0].Storage = nil },
		`Index "spec.x" is none`:          func(c *Config) { c.Resources[0].Index = "spec.x" },
		`field "spec.x[0]" is not a path`: func(c *Config) { c.Resources[0].Index, c.Resources[0].Fields = "", []string{"spec.x[0]"} },
		`"DeleteOptionsList" is reg`:      func(c *Config) { c.Resources[0].Kind = "DeleteOptions" },
		"LoopbackClientConfig == nil":     func(c *Config) { c.Generic.LoopbackClientConfig = nil },
	} {
		f := &fixture{pods: newMemory(1), widgets: newMemory(1), gadgets: newMemory(1)}
		config := f.config()
		change(&config)
		server, err := New(config)
		if err == nil {
			server.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func kindIn(kind, resource string) Resource {
	return Resource{GroupVersionResource: widgetResource.GroupVersion().WithResource(resource), Kind: kind, Storage: newMemory(1)}
}

// The scheme has one type for each name, and panics if it gets another one.
func TestAKindWhoseNameIsTakenIsAnError(t *testing.T) {
	access, list := kindIn("Access", "accesses"), kindIn("AccessList", "accesslists")
	for want, kinds := range map[string][]Resource{
		`"example.com/v1, Resource=accesslists": example.com/v1 has another kind AccessList, which is a unstructured.UnstructuredList`: {access, list},
		`"example.com/v1, Resource=accesses": example.com/v1 has another kind AccessList, which is a unstructured.Unstructured`:        {list, access},
		"has another kind WatchEvent, which is a v1.WatchEvent":                                                                        {kindIn("WatchEvent", "watchevents")},
		"has another kind ListOptions, which is a v1.ListOptions":                                                                      {kindIn("ListOptions", "listoptions")},
	} {
		f := &fixture{pods: newMemory(1), widgets: newMemory(1), gadgets: newMemory(1)}
		config := f.config()
		config.Resources = append(config.Resources, kinds...)
		if server, err := New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want %s", server, err, want)
		}
		g := serve(t) // the other resources are served without it
		if err := g.Add(kinds...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Add: got %v, want %s", err, want)
		}
		g.get(t, widgetsPath, http.StatusOK)
	}
	f := serve(t)
	storage := list.Storage.(*memory)
	if err := f.Add(list); err != nil {
		t.Fatal(err)
	}
	f.waitUntilReady(t)
	storage.set(t, custom("AccessList", map[string]any{"name": "a"}, map[string]any{}))
	f.settle(t)
	if body := f.get(t, "/apis/example.com/v1/accesslists", http.StatusOK); !strings.Contains(body, `"kind":"AccessListList"`) || !strings.Contains(body, `"name":"a"`) {
		t.Errorf("a kind whose name ends in List: %s", body)
	}
}

func TestConsistentReadsAreRefusedOnDemand(t *testing.T) {
	f := serve(t, func(c *Config) { c.RefuseConsistentReads = true })
	f.pods.set(t, pod("a", "n1"))
	f.pods.set(t, pod("b", "n1"))
	f.get(t, podPath+"?resourceVersion=102", http.StatusOK) // waits for it
	const initial = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
	const none = "?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
	for _, path := range []string{podPath, podPath + "?limit=1", podPath + "/a", podPath + initial, podPath + "?watch=true"} {
		body := f.get(t, path, http.StatusBadRequest)
		if !strings.Contains(body, `"reason":"BadRequest"`) || !strings.Contains(body, `resourceVersion=\"0\"`) {
			t.Errorf("%s: %s", path, body)
		}
	}
	for _, path := range []string{
		podPath + "?resourceVersion=0", podPath + "/a?resourceVersion=0", podPath + initial + "&resourceVersion=0",
		podPath + none, podPath + "?resourceVersion=102&limit=1",
	} {
		f.get(t, path, http.StatusOK)
	}
	first, err := f.client(t).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{ResourceVersion: "102", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	second, err := f.client(t).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{Continue: first.Continue, Limit: 1})
	if err != nil || podNames(second) != "b" {
		t.Errorf("the second page: got %v, %v", second, err)
	}
}

func TestTheWellKnownFieldsAreFieldsOfTheirTypes(t *testing.T) {
	kinds := map[string]string{
		"pods": "Pod", "nodes": "Node", "namespaces": "Namespace", "services": "Service", "secrets": "Secret",
		"replicationcontrollers": "ReplicationController", "events": "Event", "resourceslices": "ResourceSlice",
		"certificatesigningrequests": "CertificateSigningRequest", "clustertrustbundles": "ClusterTrustBundle",
		"podcertificaterequests": "PodCertificateRequest",
	}
	for resource, known := range wellKnownFields {
		var obj runtime.Object
		for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
			if o, err := scheme.Scheme.New(schema.GroupVersionKind{Group: resource.Group, Version: version, Kind: kinds[resource.Resource]}); err == nil {
				obj = o
				break
			}
		}
		if obj == nil {
			t.Errorf("%s: no type", resource)
			continue
		}
		fields, err := newFields(known.fields)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fields {
			if value, err := f.of(obj); err != nil || value != "" && value != "false" && value != "0" {
				t.Errorf("%s: %s of an empty object is %q, %v", resource, f.name, value, err)
			}
			strict := jsonpath.New(f.name)
			if err := strict.Parse("{." + f.name + "}"); err != nil {
				t.Fatal(err)
			}
			if _, err := strict.FindResults(obj); err != nil {
				t.Errorf("%s: %v", resource, err)
			}
		}
	}
}

func TestTheConfiguredAuthenticationAndAuthorizationDecide(t *testing.T) {
	f := serve(t, func(c *Config) {
		c.Generic.Authentication.Authenticator = authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			name := r.URL.Query().Get("as")
			return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, name != "", nil
		})
		c.Generic.Authorization.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser().GetName() == "agent" && a.GetVerb() == "list" && a.GetResource() == "pods" && a.GetNamespace() == "default" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})
	})
	f.get(t, podPath, http.StatusUnauthorized)
	f.get(t, podPath+"?as=agent", http.StatusOK)
	for _, path := range []string{
		podPath + "?as=other", podPath + "?as=agent&watch=true", podPath + "/a?as=agent", "/api/v1/pods?as=agent",
		widgetsPath + "?as=agent", "/api/v1/watch/namespaces/default/pods?as=agent", "/metrics?as=agent", "/readyz?as=agent",
	} {
		f.get(t, path, http.StatusForbidden)
	}
}
