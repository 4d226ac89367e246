package mix

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type template struct {
	owner owner
	pod   *corev1.Pod
	// spec and status are the managed fields of the owner's controller and of kubelet. Those of
	// kubelet have marks in the places of addresses.
	spec, status string
}

const (
	// accessVolume is the name of the volume with the access to the API, without its suffix.
	accessVolume = "kube-api-access-"
	accessPath   = "/var/run/secrets/kubernetes.io/serviceaccount"
	dataVolume   = "data"
)

var (
	words = []string{
		"account", "basket", "billing", "catalog", "checkout", "customer", "delivery", "discount", "export", "feed",
		"gateway", "identity", "import", "inventory", "invoice", "ledger", "mail", "media", "notify", "order",
		"payment", "pricing", "profile", "quota", "rating", "report", "search", "session", "shipping", "stock",
	}
	roles     = []string{"api", "worker", "web", "cache", "sync", "proxy", "store", "stream"}
	variables = []string{
		"DATABASE_URL", "REDIS_ADDR", "KAFKA_BROKERS", "LOG_LEVEL", "LOG_FORMAT", "GOMEMLIMIT", "GOMAXPROCS", "HTTP_PORT", "METRICS_PORT",
		"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SERVICE_NAME", "FEATURE_FLAGS_URL", "PAYMENTS_URL", "CATALOG_URL", "IDENTITY_URL", "BUCKET",
		"REGION", "TENANT", "TIMEOUT", "RETRIES", "BATCH_SIZE", "CACHE_TTL", "SENTRY_DSN", "ENVIRONMENT",
	}
	daemons = []string{"cni-agent", "kube-proxy", "node-exporter", "log-shipper", "csi-node", "node-local-dns", "trace-agent", "security-agent"}
)

func (m *Mix) newTemplate(at int) *template {
	o := m.owners[at]
	a := m.newApp(o)
	t := &template{owner: o, pod: a.pod}
	a.identify(m.numbers(ofOwner, at, 0), o)
	t.spec, t.status = specFields(a.pod, o), statusFields(a.pod)
	return t
}

// app is an application while its Pod is made.
type app struct {
	r         *rand.Rand
	name      string
	namespace string
	pod       *corev1.Pod
}

// newApp returns an application with the parts of its Pod that are the same for all owners: those
// from the manifest, and those that admission adds.
func (m *Mix) newApp(o owner) *app {
	r := m.numbers(ofApp, o.app, 0)
	a := &app{r: r}
	if o.kind == daemonSet {
		a.name, a.namespace = daemons[o.app], []string{"kube-system", "monitoring"}[o.app/6]
	} else {
		a.name = fmt.Sprintf("%s-%s-%d", oneOf(r, words...), oneOf(r, roles...), o.app)
		a.namespace = fmt.Sprintf("team-%04d", o.app/namespaceApps)
	}
	version := fmt.Sprintf("v%d.%d.%d", 1+r.IntN(4), r.IntN(30), r.IntN(10))
	a.pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a.namespace,
			Labels: map[string]string{
				"app.kubernetes.io/name": a.name, "app.kubernetes.io/instance": a.name, "app.kubernetes.io/version": version,
				"app.kubernetes.io/part-of": oneOf(r, words...), "team": fmt.Sprintf("team-%d", r.IntN(200)),
			},
			Annotations: map[string]string{"checksum/config": hex(r, 16)},
		},
	}
	if r.IntN(2) == 0 {
		a.pod.Annotations["prometheus.io/scrape"], a.pod.Annotations["prometheus.io/port"] = "true", "9090"
	}
	a.spec(o, version)
	a.status(o)
	return a
}

func (a *app) spec(o owner, version string) {
	r, s := a.r, &a.pod.Spec
	user := int64(10_000 + r.IntN(1000))
	*s = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: new(int64(oneOf(r, 30, 30, 45, 60))),
		DNSPolicy: corev1.DNSClusterFirst, ServiceAccountName: a.name, DeprecatedServiceAccount: a.name,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsUser: &user, RunAsGroup: new(user), FSGroup: new(user), RunAsNonRoot: new(true),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		SchedulerName: corev1.DefaultSchedulerName, Priority: new(int32(0)), EnableServiceLinks: new(true),
		PreemptionPolicy: new(corev1.PreemptLowerPriority),
		Tolerations: []corev1.Toleration{
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
		},
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: a.name + "-config"}, DefaultMode: new(int32(420))}}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
	}
	registry := "registry.example.com/" + oneOf(r, "shop", "platform", "data", "core") + "/"
	main := a.container("app", registry+a.name+":"+version)
	main.Ports = []corev1.ContainerPort{
		{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}, {Name: "metrics", ContainerPort: 9090, Protocol: corev1.ProtocolTCP}}
	main.Env = append(main.Env, a.env(7+r.IntN(12))...)
	if r.IntN(3) == 0 {
		main.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: a.name + "-env"}}}}
	}
	if o.kind != job {
		main.LivenessProbe, main.ReadinessProbe = a.probe("/healthz"), a.probe("/readyz")
	}
	main.VolumeMounts = append([]corev1.VolumeMount{
		{Name: "config", ReadOnly: true, MountPath: "/etc/" + a.name}, {Name: "tmp", MountPath: "/tmp"}}, main.VolumeMounts...)
	if r.IntN(3) == 0 {
		s.Volumes = append(s.Volumes, corev1.Volume{Name: "tls", VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: a.name + "-tls", DefaultMode: new(int32(420))}}})
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "tls", ReadOnly: true, MountPath: "/etc/tls"})
	}
	s.Containers = []corev1.Container{main}
	switch {
	case o.kind == daemonSet:
		a.onEachNode(o)
	case r.IntN(100) < 48:
		a.company(registry, version)
	}
	switch o.kind {
	case statefulSet:
		s.Containers[0].VolumeMounts = append(s.Containers[0].VolumeMounts, corev1.VolumeMount{Name: dataVolume, MountPath: "/var/lib/" + a.name})
		s.Volumes = append([]corev1.Volume{{Name: dataVolume, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}}, s.Volumes...)
		s.Subdomain = a.name
	case job:
		s.RestartPolicy = corev1.RestartPolicyOnFailure
	case replicaSet:
		a.placement()
	}
	s.Volumes = append(s.Volumes, access())
}

// access returns the volume with the access to the API, which admission adds.
func access() corev1.Volume {
	return corev1.Volume{Name: accessVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: new(int32(420)),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
		},
	}}}
}

// container returns a container with an image, and with all fields that have defaults.
func (a *app) container(name, image string) corev1.Container {
	r := a.r
	memory := resource.MustParse(fmt.Sprintf("%dMi", 64*(1+r.IntN(64))))
	return corev1.Container{
		Name: name, Image: image, Args: []string{"--config=/etc/" + a.name + "/config.yaml", "--workers=" + strconv.Itoa(1+r.IntN(32))},
		Env: []corev1.EnvVar{fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_NAMESPACE", "metadata.namespace")},
		Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{corev1.ResourceMemory: memory},
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(fmt.Sprintf("%dm", 50*(1+r.IntN(40)))), corev1.ResourceMemory: memory},
		},
		VolumeMounts:           []corev1.VolumeMount{{Name: accessVolume, ReadOnly: true, MountPath: accessPath}},
		TerminationMessagePath: corev1.TerminationMessagePathDefault, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		ImagePullPolicy: corev1.PullIfNotPresent,
		SecurityContext: &corev1.SecurityContext{
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true)},
	}
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

// env returns n-2 random variables. With the two of container, there are n.
func (a *app) env(n int) []corev1.EnvVar {
	var all []corev1.EnvVar
	for _, v := range a.r.Perm(len(variables))[:n-2] {
		e := corev1.EnvVar{Name: variables[v]}
		switch a.r.IntN(5) {
		case 0:
			e.ValueFrom = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: a.name}, Key: variables[v]}}
		case 1:
			e.Value = strconv.Itoa(1 + a.r.IntN(1000))
		case 2:
			e.Value = oneOf(a.r, "true", "false", "info", "json", "production", "eu-central-1")
		default:
			e.Value = fmt.Sprintf("http://%s-%s.team-%04d.svc.cluster.local:8080", oneOf(a.r, words...), oneOf(a.r, roles...), a.r.IntN(300))
		}
		all = append(all, e)
	}
	return all
}

func (a *app) probe(path string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP}},
		InitialDelaySeconds: int32(a.r.IntN(20)), TimeoutSeconds: int32(1 + a.r.IntN(5)), PeriodSeconds: int32(oneOf(a.r, 5, 10, 15)),
		SuccessThreshold: 1, FailureThreshold: int32(oneOf(a.r, 3, 3, 5)),
	}
}

func (a *app) company(registry, version string) {
	s := &a.pod.Spec
	first := a.container("migrate", registry+a.name+"-migrations:"+version)
	sidecar := a.container("proxy", "registry.example.com/mesh/proxy:1.31.2")
	sidecar.Args = []string{"proxy", "sidecar", "--domain", "$(POD_NAMESPACE).svc.cluster.local", "--log-level=warning"}
	sidecar.Env = append(sidecar.Env, fieldEnv("INSTANCE_IP", "status.podIP"), fieldEnv("HOST_IP", "status.hostIP"))
	sidecar.Ports = []corev1.ContainerPort{{Name: "proxy-prom", ContainerPort: 15090, Protocol: corev1.ProtocolTCP}}
	sidecar.ReadinessProbe = &corev1.Probe{
		ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz/ready", Port: intstr.FromInt32(15021), Scheme: corev1.URISchemeHTTP}},
		TimeoutSeconds: 3, PeriodSeconds: 15, SuccessThreshold: 1, FailureThreshold: 4,
	}
	s.InitContainers, s.Containers = []corev1.Container{first}, append(s.Containers, sidecar)
	a.pod.Annotations["sidecar.example.com/status"] = `{"initContainers":null,"containers":["proxy"],"volumes":["proxy-state"],"imagePullSecrets":null,"revision":"default"}`
}

// placement sets where the Pods of a Deployment may run.
func (a *app) placement() {
	same := &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": a.name}}
	s := &a.pod.Spec
	if a.r.IntN(2) == 0 {
		s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: same, TopologyKey: corev1.LabelHostname}}}}}
	}
	if a.r.IntN(2) == 0 {
		s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
			{MaxSkew: int32(1 + a.r.IntN(2)), TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: same}}
	}
	if a.r.IntN(4) == 0 {
		s.NodeSelector = map[string]string{"node.example.com/pool": oneOf(a.r, "general", "memory", "spot")}
	}
}

// onEachNode makes the Pod a Pod of a DaemonSet.
func (a *app) onEachNode(o owner) {
	s := &a.pod.Spec
	s.Tolerations = nil
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		s.Tolerations = append(s.Tolerations, corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
	}
	for _, taint := range []string{corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable} {
		s.Tolerations = append(s.Tolerations, corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	s.PriorityClassName, s.Priority = "system-node-critical", new(int32(2_000_001_000))
	s.HostNetwork = o.app < 3
	s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{""}}}}}}}}
}

// status fills in the part of the status that is the same for all Pods of an application.
func (a *app) status(o owner) {
	p := a.pod
	p.Status = corev1.PodStatus{ObservedGeneration: 1, Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable}
	p.Generation = 1
	types := []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled}
	for _, c := range types {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: c, ObservedGeneration: 1, Status: corev1.ConditionTrue})
	}
	statuses := func(all []corev1.Container) (result []corev1.ContainerStatus) {
		for _, c := range all {
			// The ID is that of the image, so it is the same on each node.
			id := fmt.Sprintf("%s@sha256:%x", c.Image[:strings.LastIndex(c.Image, ":")], sha256.Sum256([]byte(c.Image)))
			s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: id, Ready: true, Started: new(true)}
			for _, m := range c.VolumeMounts {
				status := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
				if m.ReadOnly {
					status.RecursiveReadOnly = new(corev1.RecursiveReadOnlyDisabled)
				}
				s.VolumeMounts = append(s.VolumeMounts, status)
			}
			result = append(result, s)
		}
		return result
	}
	p.Status.InitContainerStatuses, p.Status.ContainerStatuses = statuses(p.Spec.InitContainers), statuses(p.Spec.Containers)
	for i := range p.Status.InitContainerStatuses {
		p.Status.InitContainerStatuses[i].Started = new(false)
	}
	if o.kind == job {
		p.Status.Phase = corev1.PodSucceeded
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		for _, i := range []int{1, 2, 3} {
			p.Status.Conditions[i].Reason = "PodCompleted"
		}
		for _, i := range []int{2, 3} {
			p.Status.Conditions[i].Status = corev1.ConditionFalse
		}
		for i := range p.Status.ContainerStatuses {
			p.Status.ContainerStatuses[i].Ready, p.Status.ContainerStatuses[i].Started = false, new(false)
		}
	}
}

func (a *app) identify(r *rand.Rand, o owner) {
	p, by := a.pod, metav1.OwnerReference{APIVersion: "apps/v1", Name: a.name, UID: uidOf(r), Controller: new(true), BlockOwnerDeletion: new(true)}
	switch o.kind {
	case daemonSet:
		by.Kind = "DaemonSet"
		p.Labels["controller-revision-hash"], p.Labels["pod-template-generation"] = letters(r, 10), strconv.Itoa(1+r.IntN(9))
	case replicaSet:
		by.Kind = "ReplicaSet"
		p.Labels["pod-template-hash"] = letters(r, 10)
		by.Name = a.name + "-" + p.Labels["pod-template-hash"]
	case statefulSet:
		by.Kind = "StatefulSet"
		p.Labels["controller-revision-hash"] = a.name + "-" + letters(r, 10)
	case job:
		by.APIVersion, by.Kind = "batch/v1", "Job"
		by.Name = fmt.Sprintf("%s-%d", a.name, 29_000_000+a.r.IntN(100_000)+60*o.run)
		for label, value := range map[string]string{"controller-uid": string(by.UID), "job-name": by.Name} {
			p.Labels[label], p.Labels["batch.kubernetes.io/"+label] = value, value
		}
	}
	p.GenerateName = by.Name + "-"
	p.OwnerReferences = []metav1.OwnerReference{by}
	if o.kind == replicaSet && r.IntN(3) == 0 {
		p.Annotations["kubectl.kubernetes.io/restartedAt"] = moment(r).Format("2006-01-02T15:04:05Z07:00")
	}
}
