package mix

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// markHostIP and markPodIP stand for the addresses of a Pod in the managed fields of its template.
const markHostIP, markPodIP = "HOST-IP", "POD-IP"

// fields are managed fields. A field without fields of its own is empty.
type fields map[string]fields

// leaves returns the given fields, without fields of their own.
func leaves(names ...string) fields {
	f := fields{}
	for _, n := range names {
		f["f:"+n] = fields{}
	}
	return f
}

// with adds a field, and returns f.
func (f fields) with(name string, of fields) fields {
	f["f:"+name] = of
	return f
}

// item returns fields of one element of a list, which is chosen by its key.
func item(key string, value any, names ...string) (selector string, of fields) {
	v, err := json.Marshal(value)
	if err != nil {
		panic(err) // cannot happen with strings and numbers
	}
	of = leaves(append(names, key)...)
	of["."] = fields{}
	return fmt.Sprintf(`k:{"%s":%s}`, key, v), of
}

// add adds an element of a list, and returns its fields.
func (f fields) add(key string, value any, names ...string) fields {
	f["."] = fields{}
	selector, of := item(key, value, names...)
	f[selector] = of
	return of
}

// String returns the JSON form, in the order in which an API server writes it.
func (f fields) String() string {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // cannot happen with maps of strings
	}
	return string(text)
}

func keysOf(m map[string]string) fields {
	f := fields{".": fields{}}
	for k := range m {
		f["f:"+k] = fields{}
	}
	return f
}

// specFields returns the managed fields of the controller that has created the Pod. The volume that
// admission adds is not among them.
func specFields(p *corev1.Pod, o owner) string {
	owners := fields{}
	selector, of := item("uid", p.OwnerReferences[0].UID)
	clear(of)
	owners["."], owners[selector] = fields{}, of
	meta := leaves("generateName").with("labels", keysOf(p.Labels)).with("annotations", keysOf(p.Annotations)).with("ownerReferences", owners)
	spec := leaves("restartPolicy", "terminationGracePeriodSeconds", "dnsPolicy", "serviceAccountName", "serviceAccount", "schedulerName", "enableServiceLinks")
	spec.with("securityContext", leaves("runAsUser", "runAsGroup", "fsGroup", "runAsNonRoot").with("seccompProfile", leaves("type")))
	spec.with("containers", containerFields(p.Spec.Containers))
	if len(p.Spec.InitContainers) > 0 {
		spec.with("initContainers", containerFields(p.Spec.InitContainers))
	}
	volumes := fields{}
	for _, v := range p.Spec.Volumes {
		switch {
		case v.ConfigMap != nil:
			volumes.add("name", v.Name).with("configMap", leaves("name", "defaultMode"))
		case v.Secret != nil:
			volumes.add("name", v.Name).with("secret", leaves("secretName", "defaultMode"))
		case v.EmptyDir != nil:
			volumes.add("name", v.Name, "emptyDir")
		case v.PersistentVolumeClaim != nil:
			volumes.add("name", v.Name).with("persistentVolumeClaim", leaves("claimName"))
		}
	}
	spec.with("volumes", volumes)
	if p.Spec.Affinity != nil {
		affinity := fields{".": {}}
		if p.Spec.Affinity.NodeAffinity != nil {
			affinity.with("nodeAffinity", leaves("requiredDuringSchedulingIgnoredDuringExecution"))
		}
		if p.Spec.Affinity.PodAntiAffinity != nil {
			affinity.with("podAntiAffinity", leaves("preferredDuringSchedulingIgnoredDuringExecution"))
		}
		spec.with("affinity", affinity)
	}
	if len(p.Spec.TopologySpreadConstraints) > 0 {
		c := p.Spec.TopologySpreadConstraints[0]
		selector := fmt.Sprintf(`k:{"topologyKey":%q,"whenUnsatisfiable":%q}`, c.TopologyKey, c.WhenUnsatisfiable)
		spec.with("topologySpreadConstraints", fields{".": {}, selector: leaves("labelSelector", "maxSkew", "topologyKey", "whenUnsatisfiable")})
	}
	if o.kind == daemonSet {
		spec.with("tolerations", fields{}).with("priorityClassName", fields{}).with("hostNetwork", fields{})
	}
	if p.Spec.NodeSelector != nil {
		spec.with("nodeSelector", fields{})
	}
	return fields{}.with("metadata", meta).with("spec", spec).String()
}

// containerFields returns the managed fields of containers as their author writes them.
func containerFields(all []corev1.Container) fields {
	containers := fields{}
	for _, c := range all {
		f := containers.add("name", c.Name, "image", "args", "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy")
		delete(containers, ".")
		env := fields{}
		for _, e := range c.Env {
			switch {
			case e.ValueFrom == nil:
				env.add("name", e.Name, "value")
			case e.ValueFrom.FieldRef != nil:
				env.add("name", e.Name).with("valueFrom", leaves("fieldRef"))
			default:
				env.add("name", e.Name).with("valueFrom", leaves("secretKeyRef"))
			}
		}
		f.with("env", env)
		if len(c.EnvFrom) > 0 {
			f.with("envFrom", fields{})
		}
		if len(c.Ports) > 0 {
			ports := fields{".": {}}
			for _, port := range c.Ports {
				ports[fmt.Sprintf(`k:{"containerPort":%d,"protocol":"TCP"}`, port.ContainerPort)] = leaves("name", "containerPort", "protocol").dot()
			}
			f.with("ports", ports)
		}
		f.with("resources", leaves().with("limits", leaves("memory").dot()).with("requests", leaves("cpu", "memory").dot()).dot())
		mounts := fields{}
		for _, m := range c.VolumeMounts {
			if m.Name == accessVolume {
				continue
			}
			mount := mounts.add("mountPath", m.MountPath, "name")
			if m.ReadOnly {
				mount.with("readOnly", fields{})
			}
		}
		if len(mounts) > 0 {
			f.with("volumeMounts", mounts)
		}
		for name, probe := range map[string]*corev1.Probe{"livenessProbe": c.LivenessProbe, "readinessProbe": c.ReadinessProbe} {
			if probe != nil {
				f.with(name, leaves("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold").
					with("httpGet", leaves("path", "port", "scheme").dot()).dot())
			}
		}
		f.with("securityContext", leaves("allowPrivilegeEscalation", "readOnlyRootFilesystem").with("capabilities", leaves("drop").dot()).dot())
	}
	return containers
}

// dot adds the field that stands for the whole, and returns f.
func (f fields) dot() fields {
	f["."] = fields{}
	return f
}

// statusFields returns the managed fields of kubelet.
func statusFields(p *corev1.Pod) string {
	conditions := fields{}
	for _, c := range p.Status.Conditions {
		if c.Type != corev1.PodScheduled { // the scheduler's
			conditions.add("type", c.Type, "observedGeneration", "status", "lastProbeTime", "lastTransitionTime")
		}
	}
	hostIPs, podIPs := fields{}, fields{}
	hostIPs.add("ip", markHostIP)
	podIPs.add("ip", markPodIP)
	status := leaves("observedGeneration", "phase", "hostIP", "podIP", "startTime", "containerStatuses").
		with("conditions", conditions).with("hostIPs", hostIPs).with("podIPs", podIPs)
	if len(p.Spec.InitContainers) > 0 {
		status.with("initContainerStatuses", fields{})
	}
	return fields{}.with("status", status).String()
}
