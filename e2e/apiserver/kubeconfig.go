package apiserver

import (
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes a kubeconfig file with the host, the certificate and the token of
// config, for programs that run in processes of their own. An existing file is replaced.
func WriteKubeconfig(config *rest.Config, file string) error {
	const name = "apiserver"
	written := clientcmdapi.NewConfig()
	written.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	written.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: config.BearerToken, ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	written.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	written.CurrentContext = name
	return clientcmd.WriteToFile(*written, file)
}
