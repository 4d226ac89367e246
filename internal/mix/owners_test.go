package mix

import "testing"

func TestDeploymentsHaveOnePodToHundreds(t *testing.T) {
	small, most, all := 0, 0, 0
	for _, o := range New(1, 100_000).owners {
		if o.kind != replicaSet {
			continue
		}
		all++
		most = max(most, o.pods)
		if o.pods < 5 {
			small++
		}
	}
	if part := 100 * small / all; part < 45 || part > 55 {
		t.Errorf("%d %% of %d Deployments have less than 5 Pods, want about half", part, all)
	}
	if most < 300 || most > 400 {
		t.Errorf("the largest Deployment has %d Pods, want 300 to 400", most)
	}
}
