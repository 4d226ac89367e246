package mix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// epoch is the time of the earliest object.
var epoch = time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)

// moment returns a random time in the 60 days after epoch, in whole seconds.
func moment(r *rand.Rand) metav1.Time {
	return metav1.NewTime(epoch.Add(time.Duration(r.IntN(60*24*3600)) * time.Second))
}

func nodeName(n int) string {
	return fmt.Sprintf("ip-10-12-%d-%d.eu-central-1.compute.internal", n/250, n%250)
}

func nodeIP(n int) string { return fmt.Sprintf("10.12.%d.%d", n/250, n%250) }

func podIP(i int) string { return fmt.Sprintf("10.%d.%d.%d", 128+i/62500, i/250%250, i%250) }

func zone(n int) string { return "eu-central-1" + string(rune('a'+n%3)) }

func containerID(r *rand.Rand) string { return "containerd://" + hex(r, 16) }

// own sets everything in p, a copy of the template, that only the i-th Pod has.
func (m *Mix) own(p *corev1.Pod, i int) {
	r, o := m.numbers(ofPod, i, 0), m.made.owner
	p.UID, p.ResourceVersion = uidOf(r), strconv.Itoa(184_000_000+r.IntN(100_000_000))
	p.Name = p.GenerateName + suffixOf(i)
	node := r.IntN(m.nodes)
	switch o.kind {
	case daemonSet:
		node = i - o.first
		p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0] = nodeName(node)
	case statefulSet:
		p.Name = p.GenerateName + strconv.Itoa(i-o.first)
		p.GenerateName = p.OwnerReferences[0].Name + "-"
		p.Labels["statefulset.kubernetes.io/pod-name"], p.Labels["apps.kubernetes.io/pod-index"] = p.Name, strconv.Itoa(i-o.first)
		p.Spec.Hostname = p.Name
		p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = dataVolume + "-" + p.Name
	}
	p.Spec.NodeName = nodeName(node)
	p.Status.HostIP, p.Status.PodIP = nodeIP(node), podIP(i)
	if p.Spec.HostNetwork {
		p.Status.PodIP = p.Status.HostIP
	}
	p.Status.HostIPs, p.Status.PodIPs = []corev1.HostIP{{IP: p.Status.HostIP}}, []corev1.PodIP{{IP: p.Status.PodIP}}
	renameAccess(p, accessVolume+letters(r, 5))
	m.clock(p, r)
}

func renameAccess(p *corev1.Pod, name string) {
	p.Spec.Volumes[len(p.Spec.Volumes)-1].Name = name
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for c := range containers {
			for v := range containers[c].VolumeMounts {
				if mount := &containers[c].VolumeMounts[v]; mount.Name == accessVolume {
					mount.Name = name
				}
			}
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for c := range statuses {
			for v := range statuses[c].VolumeMounts {
				if mount := &statuses[c].VolumeMounts[v]; mount.Name == accessVolume {
					mount.Name = name
				}
			}
		}
	}
}

// clock sets the times in p, and the IDs of its containers.
func (m *Mix) clock(p *corev1.Pod, r *rand.Rand) {
	now := moment(r)
	later := func() metav1.Time {
		now = metav1.NewTime(now.Add(time.Duration(1+r.IntN(15)) * time.Second))
		return now
	}
	p.CreationTimestamp = now
	start := later()
	p.Status.StartTime = &start
	for i := range p.Status.InitContainerStatuses {
		s := &p.Status.InitContainerStatuses[i]
		s.ContainerID, s.Ready = containerID(r), true
		s.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: later(), FinishedAt: later(), ContainerID: s.ContainerID}
	}
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		s.ContainerID = containerID(r)
		if m.made.owner.kind == job {
			s.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: later(), FinishedAt: later(), ContainerID: s.ContainerID}
			continue
		}
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: later()}
		if r.IntN(10) == 0 {
			s.RestartCount = int32(1 + r.IntN(5))
			s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "OOMKilled", StartedAt: start, FinishedAt: s.State.Running.StartedAt, ContainerID: containerID(r)}
		}
	}
	for i := range p.Status.Conditions {
		p.Status.Conditions[i].LastTransitionTime = later()
	}
}

// update changes p as kubelet does after the restart of a container.
func (m *Mix) update(p *corev1.Pod, i, turn int) {
	r := m.numbers(ofUpdate, i, turn)
	version, _ := strconv.Atoi(p.ResourceVersion)
	p.ResourceVersion = strconv.Itoa(version + 1 + r.IntN(100_000))
	last := latest(p)
	died := metav1.NewTime(last.Add(time.Duration(1+r.IntN(100_000)) * time.Second))
	begun := metav1.NewTime(died.Add(time.Second))
	s := &p.Status.ContainerStatuses[r.IntN(len(p.Status.ContainerStatuses))]
	s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", StartedAt: last, FinishedAt: died, ContainerID: s.ContainerID}
	s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: begun}}
	s.ContainerID = containerID(r)
	s.RestartCount++
	for c := range p.Status.Conditions {
		if t := p.Status.Conditions[c].Type; t == corev1.PodReady || t == corev1.ContainersReady {
			p.Status.Conditions[c].LastTransitionTime = metav1.NewTime(begun.Add(5 * time.Second))
		}
	}
}

func (m *Mix) manage(p *corev1.Pod) {
	status := strings.NewReplacer(markHostIP, p.Status.HostIP, markPodIP, p.Status.PodIP).Replace(m.made.status)
	p.ManagedFields = []metav1.ManagedFieldsEntry{
		entry("kube-controller-manager", "v1", "", p.CreationTimestamp, m.made.spec),
		entry("kubelet", "v1", "status", latest(p), status),
	}
}

func latest(p *corev1.Pod) metav1.Time {
	return slices.MaxFunc(p.Status.Conditions, func(a, b corev1.PodCondition) int {
		return a.LastTransitionTime.Compare(b.LastTransitionTime.Time)
	}).LastTransitionTime
}

func entry(manager, version, subresource string, at metav1.Time, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: version, Time: &at,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields), Subresource: subresource,
	}
}
