// Package kubernetes contains only tests. They run the library against a whole kube-apiserver, with
// built-in types in protobuf, RBAC and admission, which the API server of module e2e does not have.
// Package kubeapiserver runs it.
//
// It is a module of its own, because k8s.io/kubernetes takes up to ten minutes to build. With -short
// all tests are skipped, and only make soak runs them.
package kubernetes
