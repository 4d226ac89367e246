package mix

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// markHostIP and markPodIP stand for the addresses of a Pod in the managed fields of its template.
const markHostIP, markPodIP = "HOST-IP", "POD-IP"

// fields are managed fields. A field without fields of its own is empty.
type fields map[string]fields

// listKeys has, for each list, the fields that identify its elements. Managed fields do not show the
// elements of other lists.
var listKeys = map[string][]string{
	"containers": {"name"}, "initContainers": {"name"}, "env": {"name"}, "ports": {"containerPort", "protocol"}, "volumeMounts": {"mountPath"},
	"volumes": {"name"}, "topologySpreadConstraints": {"topologyKey", "whenUnsatisfiable"},
	"ownerReferences": {"uid"}, "conditions": {"type"}, "hostIPs": {"ip"}, "podIPs": {"ip"},
}

// atomic are structs and maps whose fields managed fields do not show.
var atomic = []string{
	"an element of ownerReferences", "fieldRef", "secretKeyRef", "labelSelector", "nodeSelector",
	"requiredDuringSchedulingIgnoredDuringExecution", "allocatable", "capacity", "nodeInfo",
}

func fieldsOf(name string, value any) fields {
	f := fields{".": {}}
	switch v := value.(type) {
	case map[string]any:
		if slices.Contains(atomic, name) {
			return fields{}
		}
		for n, inner := range v {
			f["f:"+n] = fieldsOf(n, inner)
		}
	case []any:
		for _, element := range v {
			key := map[string]any{}
			for _, n := range listKeys[name] {
				key[n] = element.(map[string]any)[n]
			}
			if len(key) == 0 || slices.Contains(slices.Collect(maps.Values(key)), nil) {
				return fields{}
			}
			f["k:"+jsonOf(key)] = fieldsOf("an element of "+name, element)
		}
	default:
		return fields{}
	}
	if name == "spec" || name == "status" || name == "containers" {
		delete(f, ".")
	}
	return f
}

// managed returns the managed fields of the parts of an object at these paths, as an API server writes
// them.
func managed(obj any, paths ...string) string {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		panic(err) // cannot happen with a type of the API
	}
	all := fields{}
	for _, path := range paths {
		names := strings.Split(path, ".")
		value, found, _ := unstructured.NestedFieldNoCopy(content, names...)
		if !found {
			continue
		}
		outer, last := all, len(names)-1
		for _, n := range names[:last] {
			if outer["f:"+n] == nil {
				outer["f:"+n] = fields{}
			}
			outer = outer["f:"+n]
		}
		outer["f:"+names[last]] = fieldsOf(names[last], value)
	}
	return jsonOf(all)
}

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen with maps of strings and numbers
	}
	return string(text)
}

// specFields returns the managed fields of the controller that has created the Pod, without the fields
// that admission adds.
func specFields(p *corev1.Pod, o owner) string {
	p = p.DeepCopy()
	s := &p.Spec
	s.Volumes = s.Volumes[:len(s.Volumes)-1]
	for _, containers := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for c := range containers {
			containers[c].VolumeMounts = slices.DeleteFunc(containers[c].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == accessVolume })
		}
	}
	s.PreemptionPolicy, s.Priority = nil, nil
	if o.kind != daemonSet {
		s.Tolerations = nil
	}
	return managed(p, "metadata.generateName", "metadata.labels", "metadata.annotations", "metadata.ownerReferences", "spec")
}

// statusFields returns the managed fields of kubelet. The condition PodScheduled is the scheduler's.
func statusFields(p *corev1.Pod) string {
	p = p.DeepCopy()
	s := &p.Status
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	s.QOSClass, s.StartTime = "", &p.CreationTimestamp
	s.HostIP, s.HostIPs = markHostIP, []corev1.HostIP{{IP: markHostIP}}
	s.PodIP, s.PodIPs = markPodIP, []corev1.PodIP{{IP: markPodIP}}
	return managed(p, "status")
}
