//go:build !unix

package disk

import "os"

// lockFile only opens the lock file. bbolt's own lock keeps others from the store's file.
// Without flock, the only thing that two processes can do at once is to set the file
// aside.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, fileMode)
}

func lockToRead(*os.File) error { return nil }

func unlock(f *os.File) error { return f.Close() }

func explain(_ string, err error) error { return err }
