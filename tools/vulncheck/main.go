// Command vulncheck runs govulncheck over modules, if it can read a database of
// vulnerabilities:
//
//	vulncheck -govulncheck ../bin/govulncheck -root .. . store/disk
//
// Without the database it prints that nothing was checked, and fails only if the environment
// has VULNCHECK=required.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

func main() {
	root := flag.String("root", ".", "the `directory` of the repository")
	program := flag.String("govulncheck", "govulncheck", "the `program`")
	db := flag.String("db", "https://vuln.go.dev", "the `URL` of the database")
	flag.Parse()
	state, err := modified(*db)
	if err != nil {
		fmt.Printf("NOT CHECKED for known vulnerabilities: the database cannot be read: %v\n", err)
		if os.Getenv("VULNCHECK") == "required" {
			os.Exit(1)
		}
		fmt.Println("This is not a success: with VULNCHECK=required it would be a failure.")
		return
	}
	fmt.Printf("known vulnerabilities as of %s\n", state.Format(time.RFC3339))
	failed := false
	for _, dir := range flag.Args() {
		fmt.Printf("== %s\n", dir)
		if err := check(*program, *db, filepath.Join(*root, dir)); err != nil {
			fmt.Printf("%s: %v\n", dir, err)
			failed = true
		}
	}
	if failed || flag.NArg() == 0 {
		os.Exit(1)
	}
}

func check(program, db, dir string) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	cmd := exec.Command(program, "-db", db, "./...")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "GOWORK=off")
	return cmd.Run()
}

// modified returns the time of a database's last change.
func modified(db string) (time.Time, error) {
	at, err := url.JoinPath(db, "index/db.json")
	if err != nil {
		return time.Time{}, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.RegisterProtocol("file", http.NewFileTransport(http.Dir("/")))
	client := http.Client{Timeout: 30 * time.Second, Transport: transport}
	answer, err := client.Get(at)
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return time.Time{}, fmt.Errorf("%s: %s", at, answer.Status)
	}
	var index struct{ Modified time.Time }
	if err := json.NewDecoder(answer.Body).Decode(&index); err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", at, err)
	}
	if index.Modified.IsZero() {
		return time.Time{}, errors.New(at + " does not belong to a database of vulnerabilities")
	}
	return index.Modified, nil
}
