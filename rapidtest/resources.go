package rapidtest

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TrainJobs is the TrainJob of Kubeflow Trainer 2.2. An absent spec.suspend becomes false.
func TrainJobs() Resource {
	return Resource{
		GVR:  schema.GroupVersionResource{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"},
		Kind: "TrainJob", Namespaced: true, StatusSubresource: true, Rules: true, Validate: validateTrainJob,
		Fields: []string{
			"spec.activeDeadlineSeconds", "spec.initializer.dataset.*", "spec.initializer.model.*", "spec.managedBy",
			"spec.runtimePatches[].manager", "spec.runtimePatches[].time", "spec.runtimePatches[].trainingRuntimeSpec.*",
			"spec.runtimeRef.apiGroup", "spec.runtimeRef.kind", "spec.runtimeRef.name", "spec.suspend",
			"spec.trainer.args", "spec.trainer.command", "spec.trainer.env[].*", "spec.trainer.image", "spec.trainer.numNodes",
			"spec.trainer.numProcPerNode", "spec.trainer.resourcesPerNode.*",
			conditionFields, "status.jobsStatus[].*", "status.trainerStatus.*",
		},
		Default: func(obj *unstructured.Unstructured) {
			setDefault(obj.Object, false, "spec", "suspend")
			setDefault(obj.Object, "trainer.kubeflow.org/trainjob-controller", "spec", "managedBy")
			setDefault(obj.Object, "trainer.kubeflow.org", "spec", "runtimeRef", "apiGroup")
			setDefault(obj.Object, "ClusterTrainingRuntime", "spec", "runtimeRef", "kind")
		},
	}
}

// Workloads is the Workload of Kueue 0.17, version v1beta2. An absent spec.active becomes true.
func Workloads() Resource {
	return Resource{
		GVR:  schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"},
		Kind: "Workload", Namespaced: true, StatusSubresource: true, Rules: true,
		Fields: []string{
			"spec.active", "spec.maximumExecutionTimeSeconds", "spec.podSets[].*", "spec.preemptionGates[].*", "spec.priority",
			"spec.priorityClassRef.group", "spec.priorityClassRef.kind", "spec.priorityClassRef.name", "spec.queueName",
			conditionFields, "status.accumulatedPastExecutionTimeSeconds", "status.admission.*", "status.admissionChecks[].*",
			"status.clusterName", "status.nominatedClusterNames", "status.preemptionGates[].*", "status.reclaimablePods[].*",
			"status.requeueState.*", "status.resourceRequests[].*", "status.schedulingStats.*", "status.unhealthyNodes[].*",
		},
		Default: func(obj *unstructured.Unstructured) {
			setDefault(obj.Object, true, "spec", "active")
			setDefault(obj.Object, int64(1), "spec", "podSets[]", "count")
			setDefault(obj.Object, "main", "spec", "podSets[]", "name")
			setDefault(obj.Object, "main", "status", "admission", "podSetAssignments[]", "name")
		},
	}
}

// AdmissionChecks is the AdmissionCheck of Kueue 0.17, version v1beta2; it is cluster-scoped.
func AdmissionChecks() Resource {
	return Resource{
		GVR:  schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "admissionchecks"},
		Kind: "AdmissionCheck", StatusSubresource: true,
		Fields: []string{"spec.controllerName", "spec.parameters.*", "spec.retryDelayMinutes", conditionFields},
	}
}

// JobSets is the JobSet of JobSet 0.11, version v1alpha2. An absent spec.suspend stays absent.
func JobSets() Resource {
	return Resource{
		GVR:  schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"},
		Kind: "JobSet", Namespaced: true, StatusSubresource: true, Rules: true,
		Fields: []string{
			"spec.coordinator.*", "spec.failurePolicy.*", "spec.managedBy", "spec.network.*", "spec.replicatedJobs[].*",
			"spec.startupPolicy.*", "spec.successPolicy.*", "spec.suspend", "spec.ttlSecondsAfterFinished", "spec.volumeClaimPolicies[].*",
			conditionFields, "status.currentInPlaceRestartAttempt", "status.previousInPlaceRestartAttempt",
			"status.replicatedJobsStatus[].*", "status.restarts", "status.restartsCountTowardsMax", "status.terminalState",
		},
		Default: func(obj *unstructured.Unstructured) {
			setDefault(obj.Object, "Recreate", "spec", "failurePolicy", "restartStrategy")
			setDefault(obj.Object, "default", "spec", "replicatedJobs[]", "groupName")
			setDefault(obj.Object, int64(1), "spec", "replicatedJobs[]", "replicas")
		},
	}
}

// Jobs is the built-in Job, batch/v1. An absent spec.suspend becomes false, and an update without a
// resourceVersion overwrites.
func Jobs() Resource {
	return Resource{
		GVR:  schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"},
		Kind: "Job", Namespaced: true, StatusSubresource: true, Unconditional: true,
		Default: func(obj *unstructured.Unstructured) { setDefault(obj.Object, false, "spec", "suspend") },
	}
}

// Pods is the built-in Pod. A pod that is bound to a node and still runs ends gracefully: a delete
// sets its deletionTimestamp, and it stays until its kubelet deletes it with no grace left, see
// [Trainer].
func Pods() Resource {
	return Resource{
		GVR:  schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		Kind: "Pod", Namespaced: true, StatusSubresource: true, Unconditional: true,
		Default: func(obj *unstructured.Unstructured) {
			setDefault(obj.Object, int64(30), "spec", "terminationGracePeriodSeconds")
		},
		GracefulDelete: podGracePeriod,
	}
}

// validateTrainJob has the rules of the TrainJob's schema that concern what everyone writes: its
// name and its status.
func validateTrainJob(obj, _ *unstructured.Unstructured) field.ErrorList {
	var errs field.ErrorList
	if status, ok := obj.Object["status"].(map[string]any); ok && len(status) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("status"), 0, " in body should have at least 1 properties"))
	}
	name := obj.GetName()
	if len(name) > 63 {
		errs = append(errs, field.Invalid(nil, field.OmitValueType{}, "metadata.name must be no more than 63 characters"))
	}
	if len(validation.IsDNS1035Label(name[:min(len(name), 63)])) > 0 {
		errs = append(errs, field.Invalid(nil, field.OmitValueType{}, "metadata.name must match RFC 1035 DNS label format"))
	}
	return errs
}

const conditionFields = "status.conditions[].*"

// podGracePeriod is how long a pod may take to end: nothing where it never started or has ended.
func podGracePeriod(pod *unstructured.Unstructured, requested *int64) int64 {
	node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	if node == "" || phase == "Failed" || phase == "Succeeded" {
		return 0
	}
	period, _, _ := unstructured.NestedInt64(pod.Object, "spec", "terminationGracePeriodSeconds")
	if requested != nil {
		period = *requested
	}
	if period < 0 {
		return 1
	}
	return period
}

// setDefault sets a field that is absent, if what holds it is there. A "[]" after a name goes
// through the elements of a list.
func setDefault(content map[string]any, value any, path ...string) {
	name, isList := strings.CutSuffix(path[0], "[]")
	if len(path) == 1 {
		if _, ok := content[name]; !ok {
			content[name] = value
		}
		return
	}
	below := []any{content[name]}
	if isList {
		below, _ = content[name].([]any)
	}
	for _, b := range below {
		if next, ok := b.(map[string]any); ok {
			setDefault(next, value, path[1:]...)
		}
	}
}
