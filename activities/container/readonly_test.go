package container

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func readsArgv(argv []string) bool {
	_, ok := readArgv(argv)
	return ok
}

func TestReadOnlyArgv(t *testing.T) {
	assert.True(t, readsArgv([]string{"ls", "-l", "*"}))
	assert.True(t, readsArgv([]string{"cat", "$(rm a)"}), "no shell stands between")
	assert.False(t, readsArgv([]string{"sh", "-c", "ls"}))
	assert.False(t, readsArgv([]string{"sort", "-o", "a", "a"}))
	assert.False(t, readsArgv(nil))
}

func FuzzReadOnlyScript(f *testing.F) {
	f.Add("ls > a")
	f.Add("echo $(cat <<x\ny\nx\n)")
	f.Fuzz(func(t *testing.T, script string) { readScript(script) }) // it must not panic
}
