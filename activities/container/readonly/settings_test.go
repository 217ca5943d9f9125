package readonly

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestSettingsThatProveNothing: what is not refused here is still looked at.
func TestSettingsThatProveNothing(t *testing.T) {
	for _, env := range []string{
		"PATH=.:/usr/bin:/bin", "PATH=/usr/bin::/bin", "LD_PRELOAD=/srv/x.so", "LC_ALL=de_DE.ISO-8859-1",
		"BASH_FUNC_ls%%=() { rm a; }", "PS4=$(rm a)", "MANPAGER=/srv/evil/cat", "LESSOPEN=|/srv/evil/cat",
		"GCONV_PATH=/srv/evil",
		"LANG=C.UTF-8", "FPATH=/srv/evil", "ENV=/srv/evil/rc", "APP_ENV=production",
	} {
		_, ok := searchPath([]string{"HOME=/root", env})
		assert.False(t, ok, env)
	}
	search, ok := searchPath([]string{"HOME=/root", "LANG=C", "NGINX_VERSION=1.2", "PATH=/usr/bin:/bin"})
	assert.True(t, ok)
	assert.Equal(t, []string{"/usr/bin", "/bin"}, search)
}
