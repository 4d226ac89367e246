package mix

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EndpointSlice returns the i-th EndpointSlice. It has as many endpoints as a Deployment has Pods,
// but at most 100.
func (m *Mix) EndpointSlice(i int) *discoveryv1.EndpointSlice {
	r := m.numbers(ofSlice, i, 0)
	name := fmt.Sprintf("%s-%s-%d", oneOf(r, words...), oneOf(r, roles...), i)
	changed := moment(r)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%04d", i/namespaceApps), GenerateName: name + "-", Name: name + "-" + letters(r, 5), UID: uidOf(r),
			ResourceVersion: strconv.Itoa(184_000_000 + r.IntN(100_000_000)), Generation: int64(1 + r.IntN(500)), CreationTimestamp: moment(r),
			Labels: map[string]string{
				discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
				"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": oneOf(r, words...),
			},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: changed.Format("2006-01-02T15:04:05Z")},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Service", Name: name, UID: uidOf(r), Controller: new(true), BlockOwnerDeletion: new(true)}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}, {Name: new("metrics"), Port: new(int32(9090)), Protocol: new(corev1.ProtocolTCP)}},
	}
	hash := letters(r, 10)
	for range min(100, replicas(r)) {
		node := r.IntN(m.nodes)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{podIP(r.IntN(2_000_000))},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(nodeName(node)), Zone: new(zone(node)),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: s.Namespace, Name: name + "-" + hash + "-" + letters(r, 5), UID: uidOf(r)},
		})
	}
	s.ManagedFields = []metav1.ManagedFieldsEntry{entry("kube-controller-manager", "discovery.k8s.io/v1", "", changed,
		managed(s, "addressType", "endpoints", "ports", "metadata.generateName", "metadata.labels", "metadata.annotations", "metadata.ownerReferences"))}
	return s
}

// ConfigMap returns the i-th ConfigMap. Each tenth is the kube-root-ca.crt of a namespace, which has
// the same data everywhere. The others belong to applications, and all have different data.
func (m *Mix) ConfigMap(i int) *corev1.ConfigMap {
	r := m.numbers(ofConfigMap, i, 0)
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: fmt.Sprintf("team-%04d", i/10), UID: uidOf(r), ResourceVersion: strconv.Itoa(184_000_000 + r.IntN(100_000_000)), CreationTimestamp: moment(r)}}
	manager := oneOf(r, "helm", "argocd-controller", "kubectl-client-side-apply")
	if i%10 == 0 {
		manager, c.Name = "kube-controller-manager", "kube-root-ca.crt"
		c.Annotations = map[string]string{"kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."}
		ca := m.numbers(ofConfigMap, 0, 1)
		c.Data = map[string]string{"ca.crt": "-----BEGIN CERTIFICATE-----\n" + strings.Repeat(hex(ca, 16)+"\n", 17) + "-----END CERTIFICATE-----\n"}
	} else {
		app := fmt.Sprintf("%s-%s-%d", oneOf(r, words...), oneOf(r, roles...), i)
		c.Name = app + "-config"
		c.Labels = map[string]string{"app.kubernetes.io/name": app, "app.kubernetes.io/instance": app, "app.kubernetes.io/managed-by": "Helm",
			"app.kubernetes.io/version": fmt.Sprintf("v%d.%d.%d", 1+r.IntN(4), r.IntN(30), r.IntN(10))}
		c.Annotations = map[string]string{"meta.helm.sh/release-name": app, "meta.helm.sh/release-namespace": c.Namespace}
		c.Data = map[string]string{}
		for range 1 + r.IntN(5) {
			var text strings.Builder
			for range 1 + r.IntN(30) {
				fmt.Fprintf(&text, "%s: http://%s-%s.team-%04d.svc.cluster.local:%d\n",
					strings.ToLower(oneOf(r, variables...)), oneOf(r, words...), oneOf(r, roles...), r.IntN(300), 8000+r.IntN(1000))
			}
			c.Data[oneOf(r, "config.yaml", "application.properties", "routes.yaml", "features.json", "logging.yaml", "limits.yaml")] = text.String()
		}
	}
	c.ManagedFields = []metav1.ManagedFieldsEntry{
		entry(manager, "v1", "", c.CreationTimestamp, managed(c, "data", "metadata.labels", "metadata.annotations"))}
	return c
}

// Node returns the i-th node. Nodes have one of four types, and one of three zones.
func (m *Mix) Node(i int) *corev1.Node {
	r := m.numbers(ofNode, i, 0)
	size := r.IntN(4)
	cpus := 4 << size
	name := nodeName(i)
	kernel, provider := "6.1.0-28-cloud-amd64", fmt.Sprintf("aws:///%s/i-%s", zone(i), hex(r, 4))
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: uidOf(r), ResourceVersion: strconv.Itoa(184_000_000 + r.IntN(100_000_000)), CreationTimestamp: moment(r),
			Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
				corev1.LabelInstanceTypeStable: fmt.Sprintf("m6i.%dxlarge", 1<<size), corev1.LabelTopologyRegion: "eu-central-1", corev1.LabelTopologyZone: zone(i),
				"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", corev1.LabelInstanceType: fmt.Sprintf("m6i.%dxlarge", 1<<size),
				corev1.LabelFailureDomainBetaRegion: "eu-central-1", corev1.LabelFailureDomainBetaZone: zone(i),
				"node.example.com/pool": oneOf(r, "general", "memory", "spot"), "node.example.com/instance": "i-" + hex(r, 4),
			},
			Annotations: map[string]string{
				"csi.volume.kubernetes.io/nodeid": `{"ebs.csi.aws.com":"i-` + hex(r, 4) + `"}`, "node.alpha.kubernetes.io/ttl": "0",
				"alpha.kubernetes.io/provided-node-ip": nodeIP(i), "volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		},
		Spec: corev1.NodeSpec{ProviderID: provider, PodCIDR: fmt.Sprintf("10.%d.%d.0/24", 128+i/250, i%250), PodCIDRs: []string{fmt.Sprintf("10.%d.%d.0/24", 128+i/250, i%250)}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeIP(i)}, {Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalDNS, Address: name}},
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(strconv.Itoa(cpus)), corev1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dKi", cpus*4*1024*1024-r.IntN(100_000))),
				corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("104845292Ki")},
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(fmt.Sprintf("%dm", cpus*1000-80)), corev1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dKi", cpus*4*1024*1024-r.IntN(100_000)-1_000_000)),
				corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("95551679124")},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: hex(r, 8), SystemUUID: string(uidOf(r)), BootID: string(uidOf(r)), KernelVersion: kernel, OSImage: "Debian GNU/Linux 12 (bookworm)",
				ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: "v1.37.2", OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
	heartbeat := moment(r)
	for _, c := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	} {
		c.LastHeartbeatTime, c.LastTransitionTime = heartbeat, n.CreationTimestamp
		n.Status.Conditions = append(n.Status.Conditions, c)
	}
	for range 20 + r.IntN(30) { // kubelet reports at most 50
		n.Status.Images = append(n.Status.Images, m.image(r.IntN(500)))
	}
	n.ManagedFields = []metav1.ManagedFieldsEntry{
		entry("kubelet", "v1", "", n.CreationTimestamp, managed(n, "metadata.labels", "metadata.annotations")),
		entry("kubelet", "v1", "status", moment(r), managed(n, "status.allocatable", "status.capacity", "status.conditions", "status.images", "status.nodeInfo")),
	}
	return n
}

func (m *Mix) image(i int) corev1.ContainerImage {
	r := m.numbers(ofImage, i, 0)
	name := fmt.Sprintf("registry.example.com/shop/%s-%s-%d", oneOf(r, words...), oneOf(r, roles...), i)
	return corev1.ContainerImage{
		Names:     []string{name + "@sha256:" + hex(r, 16), fmt.Sprintf("%s:v%d.%d.%d", name, 1+r.IntN(4), r.IntN(30), r.IntN(10))},
		SizeBytes: 1e7 + r.Int64N(5e8),
	}
}
