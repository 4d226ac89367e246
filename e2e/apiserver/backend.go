package apiserver

import (
	"net"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"
)

// newServer assembles the API server from its parts. Its command line options cannot be used:
// they insist on a whole cluster for authentication, authorization and admission. The server
// accepts the bearer token of the given client configuration, and those of the users. If pods is
// true, it serves Pods and Secrets, too.
func newServer(listener net.Listener, certificate, key []byte, client *rest.Config, etcdURL string, others *users, pods bool) (*apiserver.CustomResourceDefinitions, error) {
	serving, err := dynamiccertificates.NewStaticCertKeyContent("serving", certificate, key)
	if err != nil {
		return nil, err
	}

	config := genericapiserver.NewRecommendedConfig(apiserver.Codecs)
	// These are only two checks that always pass, but one of them leaks a goroutine.
	config.HealthzChecks, config.LivezChecks, config.ReadyzChecks = nil, nil, nil
	config.SecureServing = &genericapiserver.SecureServingInfo{Listener: listener, Cert: serving}
	config.LoopbackClientConfig = client
	config.Authentication.Authenticator = others
	config.Authorization.Authorizer = authorizer.AuthorizerFunc(others.Authorize)
	config.AdmissionControl = admission.NewChainHandler()
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.MergedResourceConfig = apiserver.DefaultAPIResourceConfigSource()
	podScheme, err := newPodScheme()
	if err != nil {
		return nil, err
	}
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(
		withPods(openapi.GetOpenAPIDefinitions), openapinamer.NewDefinitionNamer(apiserver.Scheme, podScheme))
	// Any value makes the server end its watches on shutdown and wait for their handlers.
	// Without one it leaves them running.
	config.ShutdownWatchTerminationGracePeriod = time.Second

	storage := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig(
		"/registry", apiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)))
	storage.StorageConfig.Transport.ServerList = []string{etcdURL}
	if err := storage.ApplyTo(&config.Config); err != nil {
		return nil, err
	}

	extensions := &apiserver.Config{
		GenericConfig: config,
		ExtraConfig: apiserver.ExtraConfig{
			CRDRESTOptionsGetter: options.NewCRDRESTOptionsGetter(
				*storage, config.ResourceTransformers, config.StorageObjectCountTracker),
		},
	}
	server, err := extensions.Complete().New(genericapiserver.NewEmptyDelegate())
	if err != nil || !pods {
		return server, err
	}
	return server, installPods(server.GenericAPIServer, podScheme, storage)
}
