package readonly

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestScript(t *testing.T) {
	for script, programs := range map[string][]string{
		"cat 'a b' | wc -l":                      {"sh", "cat", "wc"},
		"cd src && ls -la; /usr/bin/head -n 2 c": {"sh", "cd", "ls", "/usr/bin/head"},
		"\necho \"it's\"''x || true\n":           {"sh", "echo", "true"},
	} {
		got, ok := ParseScript(script)
		assert.True(t, ok, script)
		assert.Equal(t, programs, got, script)
	}
	for what, script := range map[string]string{
		"a comment that goes on":       "ls # list \\\nrm -rf /srv/data",
		"arithmetic in a variable":     `x='a[$(rm -rf /srv/data)]'; [ x -eq 1 ]`,
		"a program with configuration": "git --version",
		"a program with sockets":       `gawk 'BEGIN { print "x" |& "/inet/tcp/0/h/1" }'`,
		"a socket through a variable":  "x=/dev/tcp/h/1; cat <$x",
		"a device":                     "cat /dev/sda",
		"a device from the root":       "cd /; cat dev/sda",
		"another process's input":      "head -c 9 /proc/1/fd/0",
		"a glob":                       "cat /pr*/1/fd/0",
		"nothing between":              "ls ;; ls",
		"an end that is missing":       "ls |",
	} {
		_, ok := ParseScript(script)
		assert.False(t, ok, what)
	}
}

func TestArgv(t *testing.T) {
	readsArgv := func(argv ...string) bool {
		_, ok := ParseArgv(argv)
		return ok
	}
	assert.True(t, readsArgv("ls", "-l", "*"))
	assert.True(t, readsArgv("cat", "$(rm a)"), "no shell stands between")
	assert.False(t, readsArgv("sh", "-c", "ls"))
	assert.False(t, readsArgv("sort", "-o", "a", "a"))
	assert.False(t, readsArgv())
}

func FuzzScript(f *testing.F) {
	f.Add("ls > a")
	f.Add("echo $(cat <<x\ny\nx\n)")
	f.Fuzz(func(t *testing.T, script string) { ParseScript(script) }) // it must not panic
}
