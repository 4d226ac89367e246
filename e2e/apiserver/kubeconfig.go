package apiserver

import (
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig returns a kubeconfig with the host, the certificate and the token of config.
func Kubeconfig(config *rest.Config) ([]byte, error) { return clientcmd.Write(*kubeconfig(config)) }

// WriteKubeconfig writes such a kubeconfig to a file, for programs that run in processes of their own. An
// existing file is replaced.
func WriteKubeconfig(config *rest.Config, file string) error {
	return clientcmd.WriteToFile(*kubeconfig(config), file)
}

func kubeconfig(config *rest.Config) *clientcmdapi.Config {
	const name = "apiserver"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: config.BearerToken, ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	return k
}
