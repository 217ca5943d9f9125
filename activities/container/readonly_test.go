package container

import (
	"testing"

	"github.com/docker/docker/api/types/container"
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

// TestSettingsThatProveNothing: what is not refused here is still looked at.
func TestSettingsThatProveNothing(t *testing.T) {
	for _, env := range []string{
		"PATH=.:/usr/bin:/bin", "PATH=/usr/bin::/bin", "LD_PRELOAD=/srv/x.so", "LC_ALL=de_DE.ISO-8859-1",
		"BASH_FUNC_ls%%=() { rm a; }", "PS4=$(rm a)", "MANPAGER=/srv/evil/cat", "LESSOPEN=|/srv/evil/cat", "GCONV_PATH=/srv/evil",
	} {
		_, ok := searchPath([]string{"HOME=/root", env})
		assert.False(t, ok, env)
	}
	search, ok := searchPath([]string{"HOME=/root", "LANG=C.UTF-8", "CFLAGS=-O2", "PATH=/usr/bin:/bin"})
	assert.True(t, ok)
	assert.Equal(t, []string{"/usr/bin", "/bin"}, search)

	for may, host := range map[string]container.HostConfig{
		"mount": {CapAdd: []string{"SYS_ADMIN"}}, "mount too": {CapAdd: []string{"cap_sys_admin"}}, "do all": {CapAdd: []string{"ALL"}}, "": {Privileged: true},
	} {
		assert.True(t, mountsMayBeMade(container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{HostConfig: &host}}), may)
	}
	assert.False(t, mountsMayBeMade(container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{HostConfig: &container.HostConfig{CapAdd: []string{"NET_ADMIN"}}}}))
}

func FuzzReadOnlyScript(f *testing.F) {
	f.Add("ls > a")
	f.Add("echo $(cat <<x\ny\nx\n)")
	f.Fuzz(func(t *testing.T, script string) { readScript(script) }) // it must not panic
}
