package source

import "k8s.io/apimachinery/pkg/util/resourceversion"

func compares(version string) bool {
	_, err := resourceversion.CompareResourceVersion(version, version)
	return err == nil
}

func older(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order < 0
}

// isAnyVersion reports whether a request for this version may get any state.
func isAnyVersion(version string) bool { return version == "" || version == "0" }
