package container

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestReadOnlyScript is the corpus of command lines that the parser is judged by.
func TestReadOnlyScript(t *testing.T) {
	harmless := []string{
		"ls", "ls -la /srv", "/bin/ls", "/usr/bin/env", "cat /etc/passwd", "cat a b | grep x | wc -l", "pwd && ls", "cd /srv && ls -l",
		"ls; pwd; id", "(cd /srv; ls)", "{ ls; pwd; }", "if [ -e /srv/a ]; then cat /srv/a; else echo none; fi",
		"if true; then ls; elif false; then pwd; fi", "! grep -q x /srv/a", "ls /nope 2>/dev/null", "ls >/dev/null 2>&1",
		"ls 2>&-", "cat </etc/passwd", "wc -l < /etc/passwd", "echo hello", "echo \"$HOME\"", "echo $HOME ${PATH}",
		"echo $(ls | wc -l)", "echo `pwd`", "cat $(ls)", "ls *", "cat /srv/*.yml", "echo {a,b}", "ls ~", "echo 'rm -rf /'",
		"echo \"rm -rf /\"", "echo a\\ b", "find /srv -name '*.go' -type f", "find . -mtime -1 -print0", "find / -xdev -size +1k",
		"sort -u -k 2 /srv/a", "sort -t, -k1,1n a", "sort a b c", "uniq -c", "uniq -c a", "sed -n 1,20p /srv/a", "sed -n '5p;7q' a",
		"date", "date +%s", "date -u -d @0 +%F", "printf '%s\\n' \"$x\"", "printf %s hello", "test -f /srv/a", "[ 1 = 1 ]",
		"command -v sh", "type ls", "which python", "set -eu; ls", "set -o pipefail; ls", "diff -u a b", "jq .version package.json",
		"grep -rn 'a|b;c>d' /srv", "grep '>' a", "env", "hostname", "mount", "tail -n 5 a || exit 1", "stat -c %s a # > b",
		"ls \\\n-l", "exit 3", ":", "sleep 1", "echo $'a'", "[ ! -e /srv/a ]", "sha256sum /srv/a | cut -d' ' -f1",
	}
	risky := []string{
		"", " ", "# nothing", "rm -rf /", "ls; rm a", "ls && rm a", "ls || rm a", "ls | tee a", "ls | xargs rm", "ls & ", "ls &",
		"ls > a", "ls >> a", "ls >| a", "ls >&a", "ls &> a", "ls &>/dev/null", "cat <> a", "cat <<EOF\nx\nEOF\n", "cat <<< x", "ls >$x",
		"ls > /dev/null/../a", "ls > /dev/nul*", "ls 2> err", "cat <(rm a)", "ls >(rm a)", "echo $(rm a)", "echo `rm a`",
		"echo \"$(rm a)\"", "cat < $(rm a)", "echo ${x:=$(rm a)}", "echo ${x:-$(rm a)}", "echo $((x=1))", "echo ${x:=1}", "x=1",
		"PATH=/evil ls", "LD_PRELOAD=/evil.so ls", "$x", "$x ls", "\"$x\"", "l\\s", "'l's$x", "$(echo rm) a", "`echo rm` a", "./ls",
		"/srv/ls", "../bin/ls", "/bin/../srv/ls", "bash -c ls", "sh -c 'ls'", "eval ls", "exec ls", ". ./a", "source a", "env ls",
		"env -i rm a", "sudo ls", "nohup ls", "time ls", "timeout 1 ls", "nice ls", "xargs ls", "busybox ls", "command ls", "builtin ls",
		"command -p rm", "ls() { rm a; }; ls", "function ls { rm a; }", "alias ls=rm; ls", "unset PATH", "export PATH=/evil", "trap 'rm a' EXIT",
		"for i in a; do ls; done", "while true; do ls; done", "until false; do ls; done", "case x in x) ls;; esac", "let x=1", "((x=1))",
		"[[ -v a ]]", "[ -v 'a[$(rm b)]' ]", "test -v 'a[$(rm b)]'", "test -R x", "[ $x ]", "printf -v PATH /evil", "printf \"$x\"",
		"read x", "mapfile a", "find . -delete", "find . -exec rm {} +", "find . -execdir rm {} \\;", "find . -ok rm {} \\;",
		"find . -fprint a", "find . -fprintf a x", "find . -fls a", "find $x", "find *", "find . -files0-from a",
		"sort -o a a", "sort a -o b", "sort -oa a", "sort --output=a a", "sort --out a", "sort --compress-program=rm a", "sort *",
		"sort -T /srv a", "sort -no a", "uniq a b", "uniq -c a b", "uniq $x", "sed -i s/a/b/ a", "sed s/a/b/w\\ c a", "sed -n 'w b' a", "sed 1d a", "sed -n '1e rm b' a",
		"sed -n 1p -i a", "sed -n -i 1p a", "date -s 2020-01-01", "date 010100002020", "date --set=x", "hostname evil", "mount /dev/sda /mnt",
		"set -- rm", "set -f rm", "set", "diff -l a b", "diff --to-file=x a", "awk 1 a", "awk 'BEGIN{system(\"rm a\")}'", "python -c 1", "node -e 1",
		"git status", "git log", "curl http://x", "tar tf a", "dd if=a of=b", "tee a", "touch a", "mkdir a", "cp a b", "mv a b", "ln a b",
		"chmod 0 a", "kill 1", "file -C", "less a", "more a", "vi a", "top", "crontab -l", "ls\x00", "ls 'unclosed", "if ls; then rm a; fi",
		"if rm a; then ls; fi", "if ls; then ls; else rm a; fi", "(ls; rm a)", "{ ls; rm a; }", "! rm a", "ls | (rm a)", "coproc ls", "ls |& cat",
		"$'rm' a", "sort $'-o' a", "[a]ls", "{rm,a}", "ls\nrm a", "ls\r\nrm a", "echo a; \\\nrm b", "~/ls", "ls;:>a", ">a", ">/dev/null",
	}
	for _, script := range harmless {
		assert.True(t, readOnlyScript(script), "harmless, but taken for risky: %q", script)
	}
	for _, script := range risky {
		assert.False(t, readOnlyScript(script), "RISKY, but taken for harmless: %q", script)
	}
}

func TestReadOnlyArgv(t *testing.T) {
	assert.True(t, readOnlyArgv([]string{"ls", "-l", "*"}))
	assert.True(t, readOnlyArgv([]string{"cat", "$(rm a)"}), "no shell stands between")
	assert.False(t, readOnlyArgv([]string{"sh", "-c", "ls"}))
	assert.False(t, readOnlyArgv([]string{"sort", "-o", "a", "a"}))
	assert.False(t, readOnlyArgv(nil))
}

func FuzzReadOnlyScript(f *testing.F) {
	f.Add("ls > a")
	f.Add("echo $(cat <<x\ny\nx\n)")
	f.Fuzz(func(t *testing.T, script string) { readOnlyScript(script) }) // it must not panic
}
