package workspace

import (
	"os"
	"sync"
)

// knownVersion is the version of the terraform program. terraform-exec asks for it in each new
// workspace, and to start terraform is most of what a short command costs. It is known until
// another program stands at the path.
type knownVersion struct {
	mu      sync.Mutex
	program os.FileInfo
	version string
}

// of is the version of the program at path; empty where it has to be asked.
func (k *knownVersion) of(path string) string {
	now, err := os.Stat(path)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil || k.program == nil || !os.SameFile(k.program, now) || k.program.Size() != now.Size() ||
		!k.program.ModTime().Equal(now.ModTime()) {
		return ""
	}
	return k.version
}

// remember keeps what a program has said; program is what stood at the path before it was asked.
func (k *knownVersion) remember(program os.FileInfo, version string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.program, k.version = program, version
}
