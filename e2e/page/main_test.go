package page_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"
)

const (
	// patience limits every wait; between is the time from one look to the next.
	patience = 5 * time.Minute
	between  = 50 * time.Millisecond
)

var (
	screenshots = flag.String("screenshots", "", "write pictures of a page with 60 informers to this `directory`, an absolute path")
	screenshot  = flag.String("screenshot", "", "write the picture of the page to this `file`, an absolute path")

	// browser is the context of the browser that all tests share; nil if none is installed.
	browser context.Context
)

func TestMain(m *testing.M) {
	stop, err := startBrowser()
	if err != nil {
		log.Fatal(err)
	}
	// The tests spend most of their time waiting, so four may run at once. A -parallel flag is
	// parsed later and overrides this.
	if err := flag.Set("test.parallel", "4"); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	if err := errors.Join(stop(), goleak.Find()); err != nil {
		log.Print(err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// startBrowser sets browser if a browser is installed. stop ends the browser and waits until
// it is gone.
func startBrowser() (stop func() error, err error) {
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if program, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if program == "" {
		return func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp("", "informer-page")
	if err != nil {
		return nil, err
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(program), chromedp.UserDataDir(dir),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
	}
	for _, flag := range []string{
		"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage",
		"disable-background-timer-throttling", "disable-backgrounding-occluded-windows", "disable-renderer-backgrounding",
	} {
		options = append(options, chromedp.Flag(flag, true))
	}
	options = append(options, chromedp.Flag("host-resolver-rules", "MAP *.test 127.0.0.1")) // as a hostile site's DNS may answer
	allocator, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	// Ignore the errors of chromedp: differences between versions of the protocol are not a fault
	// of the page.
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	stop = func() error {
		limited, enough := context.WithTimeout(ctx, patience)
		defer enough()
		err := chromedp.Cancel(limited)
		cancel()
		endAllocator()
		return errors.Join(err, waitForEnd(dir), os.RemoveAll(dir))
	}
	if err := chromedp.Do(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", program, err), stop())
	}
	browser = ctx
	return stop, nil
}

// waitForEnd waits until no process uses dir for its data, on systems that have /proc. It
// polls because the processes are children of the browser, not of this process.
func waitForEnd(dir string) error {
	for began := time.Now(); ; time.Sleep(between) {
		processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return err
		}
		var using []string
		for _, process := range processes {
			if line, err := os.ReadFile(process); err == nil && bytes.Contains(line, []byte(dir)) {
				using = append(using, process)
			}
		}
		if len(using) == 0 {
			return nil
		}
		if time.Since(began) > patience {
			return fmt.Errorf("still there: %v", using)
		}
	}
}
