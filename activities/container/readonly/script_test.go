package readonly

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func readsArgv(argv []string) bool {
	_, ok := ParseArgv(argv)
	return ok
}

func TestArgv(t *testing.T) {
	assert.True(t, readsArgv([]string{"ls", "-l", "*"}))
	assert.True(t, readsArgv([]string{"cat", "$(rm a)"}), "no shell stands between")
	assert.False(t, readsArgv([]string{"sh", "-c", "ls"}))
	assert.False(t, readsArgv([]string{"sort", "-o", "a", "a"}))
	assert.False(t, readsArgv(nil))
}

func FuzzScript(f *testing.F) {
	f.Add("ls > a")
	f.Add("echo $(cat <<x\ny\nx\n)")
	f.Fuzz(func(t *testing.T, script string) { ParseScript(script) }) // it must not panic
}
