// Package clusters follows a set of clusters whose kubeconfigs come and go, for the parts of a program that read
// these clusters.
//
// [New] makes a [Provider] from a source of kubeconfigs: [Secrets] in one namespace, or the files of a [Directory]. The
// Provider calls each [Follower], such as an informer over clusters. It is a member of an [informer.Group]:
//
//	fleet, err := clusters.New(clusters.Secrets{
//		Client: clientset.CoreV1(), Namespace: "fleet", Selector: "example.com/fleet=east",
//	}, clusters.Options{}, pods)
//	…
//	err = group.Add(fleet)
//
// A cluster comes with its kubeconfig, and leaves when its Secret or its file is deleted. A kubeconfig that changes
// replaces the last one. A kubeconfig that is refused changes nothing: the cluster keeps its last good one, so that a typing
// mistake deletes no objects. [Health] and the ErrorHandler get the reason. When Run ends, all clusters stay engaged.
//
// # What is refused, and why
//
// A kubeconfig can make a client run programs, read files of its process, and send the result to any address. So the
// right to write kubeconfigs would be a right to do all that in the program. [Config] accepts only an https server, with
// credentials and certificates inside the kubeconfig. It refuses the following, unless a field of [Allow] permits it:
//
//   - exec and auth-provider, which run a program or a plugin.
//   - certificate-authority, client-certificate, client-key and tokenFile, which read files. A path must be absolute.
//   - proxy-url, which lets another host see and answer the requests.
//   - insecure-skip-tls-verify, and servers with http, which show the credentials to the network.
//   - as, as-uid, as-groups and as-user-extra, with which the program acts as another user than its credentials name.
//
// Only the current-context counts, with the cluster and the user that it names. A missing field is not taken from
// another kubeconfig, from KUBECONFIG or from the account of the Pod. Errors, log lines and Health name fields, and never a
// value. The address of the server is not limited: the author of a kubeconfig chooses the https servers that the program
// sends requests to. HTTPS_PROXY and NO_PROXY of the process apply to all clusters.
//
// # Identity
//
// With each kubeconfig, a follower gets a UID. The same UID as before means the same cluster, with new credentials or another
// address. Another UID means that another cluster has taken over the name. The UID is a hash of the address and the CA at
// the time when the cluster was engaged. It is not the UID of the namespace kube-system, because a cluster is engaged at
// once, even if it does not answer. A cluster that does not answer at a start must not seem to be another one.
//
// The Provider reads the UID of kube-system in the background, with pauses from 1 to 10 min until it is known. When a kubeconfig
// has changed, it compares the clusters:
//
//   - If both UIDs of kube-system are known, the cluster is the same if they are equal.
//   - Otherwise, it is the same if address and CA are equal.
//   - If these are not equal and the new address does not answer, or refuses the credentials, the last kubeconfig stays in
//     use, and the Provider asks again. So a typing mistake in an address deletes no objects either.
//
// The same cluster keeps the UID that the followers have, so that no cluster leaves because a UID of kube-system is read late. A
// read may take 10 s, and at most 8 are under way. The user of a kubeconfig needs the verb get on the namespace
// kube-system, see [store.ClusterUID]. Without it, a cluster that gets another address or CA counts as another one.
package clusters

// The parts of the package.
//
//   - provider.go is the Provider, with its Health. secrets.go and directory.go bring it the kubeconfigs of Secrets and of
//     files, and config.go refuses some of them.
//   - set.go decides whether another kubeconfig is of the same cluster, calls the followers, and asks clusters for their UIDs.
//   - follow.go is the follower that is an informer, and clients.go the one that keeps a client for each cluster.
