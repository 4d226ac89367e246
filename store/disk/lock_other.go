//go:build !unix

package disk

import "os"

// lockFile leaves it to bbolt's own lock to keep others from the file: without flock,
// the one thing that two processes can do at once is to set it aside.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
}

func lockToRead(*os.File) error { return nil }

func unlock(f *os.File) error { return f.Close() }
