package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A full run takes hours, so the committed matrix may lack faults.
func TestTheMatrixHasOnlyFaultsThatExist(t *testing.T) {
	all, _, err := choose("")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := matrix{file: "matrix.txt"}.read(all)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) == 0 {
		t.Error("the matrix is empty")
	}
	t.Logf("%d of %d faults are not in the matrix", len(all)-len(rows), len(all))
}

func TestTheMatrixShowsWhichPackagesNoticeAFault(t *testing.T) {
	const test = "import \"testing\"\n\nimport m \"" + base + "\"\n\nfunc TestOne(t *testing.T) {\n\tif m.One() != 1 {\n\t\tt.Fail()\n\t}\n}\n"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                   "module " + base + "\n\ngo 1.26\n",
		"m.go":                     "package m\n\nimport _ \"embed\"\n\n//go:embed texts/two.txt\nvar two string\n\nfunc One() int { return 1 }\n",
		"m_test.go":                "package m\n\nimport \"testing\"\n\nfunc TestTwo(t *testing.T) {\n\tif two != \"2\" {\n\t\tpanic(two)\n\t}\n}\n",
		"texts/two.txt":            "2",
		"helper/helper.go":         "package helper\n\nimport m \"" + base + "\"\n\nvar One = m.One\n",
		"direct/direct_test.go":    "package direct\n\n" + test,
		"through/through_test.go":  "package through\n\n" + strings.Replace(test, base, base+"/helper", 1),
		"other/other.go":           "package other\n\nconst one = 1\n",
		"other/other_test.go":      "package other\n\nimport \"testing\"\n\nfunc TestAlwaysFails(t *testing.T) { t.Fail() }\n",
		"nested/go.mod":            "module " + base + "/nested\n\ngo 1.26\n\nrequire " + base + " v0.0.0\n\nreplace " + base + " => ../\n",
		"nested/in/nested.go":      "package in\n\nfunc four() int { return 4 }\n",
		"nested/in/nested_test.go": "package in\n\n" + test + "\nfunc TestFour(t *testing.T) {\n\tif four() != 4 {\n\t\tt.Fail()\n\t}\n}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	one := fault{What: "one", File: "m.go", Old: "return 1", New: "return 3"}
	otherOne := fault{What: "one", File: "m.go", Old: "return 1", New: "return 0"}
	two := fault{What: "two", File: "texts/two.txt", Old: "2", New: "3"}
	none := fault{What: "none", File: "m.go", Old: "return 1", New: "return 2 - 1"}
	four := fault{What: "four", File: "nested/in/nested.go", Old: "return 4", New: "return 5"}
	file := filepath.Join(t.TempDir(), "matrix.txt")
	root, both := matrix{file: file, modules: []string{"."}}, matrix{file: file, modules: []string{".", "nested"}}
	again, summary := both, both
	again.again, summary.summary = true, true
	for _, step := range []struct {
		what    string
		matrix  matrix
		faults  []fault
		chosen  int // the first faults, up to this number
		err     string
		printed string // regular expressions
		kept    string
	}{
		{"the root module", root, []fault{one, two, none, four}, 4, "", `4/4 four: .*no package notices: none\n.* 1 +1  nested/in\n.* 0 +0  other\n`, `one \| m.go \| \w{8} \| \d+ \| direct\ntwo \| texts/two.txt \| \w{8} \| \d+ \| \.\nnone .*\| -\nfour .*\| nested/in\n$`},
		{"all are known", both, []fault{one, two, none, four}, 4, "", `^no package`, `one .* \| direct\n`},
		{"another module", again, []fault{one, two, none, four}, 1, "", `\n1/1 one: .* 2 +1  nested/in\n`, `one .* \| direct, nested/in\ntwo`},
		{"one has moved, without a run", summary, []fault{otherOne, two, none, four}, 4, "", `^moved: one: from m.go \| \w+ to m.go \| \w+\nno package.*4 of 4 faults`, `one`},
		{"one has moved", root, []fault{otherOne, two, none, four}, 4, "", `1/1 one: `, `one .* \| direct\ntwo`},
		{"a line without a fault", both, []fault{one, none, four}, 3, `line 3 is of a fault that does not exist: "two"`, ``, `\ntwo`},
		{"no Go", both, []fault{{What: "one", File: "m.go", Old: "return 1", New: "return x"}, two, none, four}, 4, "does not compile", ``, `one .* \| direct\ntwo`},
		{"tests that always fail", both, []fault{otherOne, two, none, four, {What: "other", File: "other/other.go", Old: "one", New: "two"}}, 5, "without any fault: other: TestAlwaysFails", ``, `one`},
	} {
		printed := strings.Builder{}
		err := step.matrix.run(t.Context(), &printed, dir, step.faults, step.faults[:step.chosen])
		if step.err == "" && err != nil || step.err != "" && (err == nil || !strings.Contains(err.Error(), step.err)) {
			t.Errorf("%s: %v, want %q", step.what, err, step.err)
		}
		kept, err := os.ReadFile(file)
		for want, text := range map[string]string{step.printed: printed.String(), step.kept: string(kept)} {
			if err != nil || !regexp.MustCompile(`(?s)`+want).MatchString(text) {
				t.Errorf("%s: %v:\n%s\nwant %s", step.what, err, text, want)
			}
		}
	}
}

func TestTheShortestTestsAreChosen(t *testing.T) {
	calls := map[int]bool{1: true}
	tr := trial{
		build:  &build{switches: map[string]int{"one": 1}},
		budget: 3 * time.Second,
		checks: map[string][]check{"dir": {
			{"TestOfAnother", time.Second, nil},
			{"TestShort", time.Second, calls},
			{"TestNext", 2 * time.Second, calls},
			{"TestOverTheBudget", 3 * time.Second, calls},
			{"TestModel", time.Minute, calls},
		}},
	}
	for what, want := range map[string]string{
		"one":             "TestShort|TestNext|TestModel", // a fault that the environment chooses
		"not in function": "TestOfAnother|TestShort|TestModel",
	} {
		if names, took := tr.chosen(fault{What: what, Tests: "TestModel$/ran"}, "dir"); names != want || took < time.Minute {
			t.Errorf("%s: %s, which take %v, want %s", what, names, took, want)
		}
	}
	tr.budget = 0
	if names, _ := tr.chosen(fault{What: "one", Tests: "TestNone"}, "dir"); names != "TestShort" {
		t.Errorf("without a budget: %q, want the shortest test", names)
	}
	if names, _ := tr.chosen(fault{What: "one", Tests: "TestNone"}, "elsewhere"); names != "" {
		t.Errorf("of a package without tests: %q", names)
	}
}
