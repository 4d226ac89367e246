package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyADatabaseIsOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "index"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "index", "db.json"), []byte(`{"modified":"2026-01-02T03:04:05Z"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if at, err := modified("file://" + filepath.ToSlash(dir)); err != nil || at.Year() != 2026 {
		t.Errorf("a directory: %v, %v", at, err)
	}
	for answer, want := range map[string]string{"": "404", "<html>": "invalid character", "{}": "not belong to a database"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if answer == "" {
				http.NotFound(w, r)
			}
			_, _ = w.Write([]byte(answer))
		}))
		if at, err := modified(server.URL); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q", answer, at, err, want)
		}
		server.Close()
		if at, err := modified(server.URL); err == nil {
			t.Errorf("without a server it returns %v", at)
		}
	}
}
