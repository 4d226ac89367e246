package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := known.ReadFile("known/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), "*", "The Gophers, Inc.")
}

func TestTextsAreKnownAndAdditionsAreNoticed(t *testing.T) {
	t.Parallel()
	ours, err := os.ReadFile(filepath.FromSlash("../../LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, want, wrong string }{
		{"ours", string(ours), "Apache-2.0", ""},
		{"with a holder", "Copyright (c) 2020 A & B. All rights reserved.\n\n" + strings.ToUpper(text(t, "MIT")), "MIT", ""},
		{"two clauses are no three", text(t, "BSD-2-Clause"), "BSD-2-Clause", ""},
		{"three are no two", text(t, "BSD-3-Clause"), "BSD-3-Clause", ""},
		{"two texts", text(t, "ISC") + "\nFiles in x:\n" + text(t, "MIT"), "ISC MIT", ""},
		{"a condition", text(t, "MIT") + "\nIt must not be used for evil.", "MIT", "must"},
		{"a commons clause", "The Software is provided under the License with the Commons Clause.\n" + text(t, "MIT"), "MIT", "clause"},
		{"another one too", text(t, "MIT") + strings.Repeat(" more", around+1), "MIT", "not part of"},
		{"a changed word", strings.Replace(text(t, "MIT"), "sublicense", "lease", 1), "", "not a known licence"},
		{"nothing", "", "", "not a known licence"},
	} {
		t.Run(c.name, func(t *testing.T) {
			names, err := identify(c.text, licences())
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("it is %q, want %q", got, c.want)
			}
			if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%v, want %q", err, c.wrong)
			}
		})
	}
}

func TestAllLicenceFilesOnTheWayUpCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("used/by/us.go", "package by")
	write("used/COPYING", text(t, "ISC"))
	write("unused/LICENSE", "a secret")
	u := &use{dir: dir, packages: map[string]struct{}{filepath.Join(dir, "used", "by"): {}}}
	if names, err := u.licences(licences()); err == nil || !strings.Contains(err.Error(), "no licence file") {
		t.Errorf("without one of its own: %v, %v", names, err)
	}
	write("LICENSE-MIT.md", text(t, "MIT"))
	if names, err := u.licences(licences()); err != nil || !slices.Equal(names, []string{"ISC", "MIT"}) {
		t.Errorf("%v, %v, want both", names, err)
	}
}
