package notices

import (
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// What the page says about verifying a request takes ours, and no other.
func TestTheDocumentedVerificationTakesOurRequestsOnly(t *testing.T) {
	testrun.NeedProgram(t, "python3", "install the package python3-minimal")
	page, err := os.ReadFile("../../docs/notices.md")
	require.NoError(t, err)
	code := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, code)
	url, got := receiver(t, http.StatusOK)
	d := desk(Channel{Webhook: &Webhook{URL: "URL", Key: "KEY"}},
		map[activities.OwnSecret]string{"URL": url, "KEY": "a-secret-key"})
	require.Empty(t, deliver(t, d, atGate("deploy", activities.High)).Trouble)
	r := <-got
	verify := func(key, at, signature string, body []byte) string {
		run := exec.Command("python3", "-c", string(code[1])+`
import sys
headers = {"Unwind-Time": sys.argv[2], "Unwind-Signature": sys.argv[3]}
print(is_genuine(sys.argv[1].encode(), headers, sys.argv[4].encode()))`,
			key, at, signature, string(body))
		out, err := run.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	at, signature := r.header.Get(HeaderTime), r.header.Get(HeaderSignature)
	require.Equal(t, "True\n", verify("a-secret-key", at, signature, r.body))
	require.Equal(t, "False\n", verify("another-key", at, signature, r.body))
	require.Equal(t, "False\n", verify("a-secret-key", at, signature, append(r.body, ' ')))
	require.Equal(t, "False\n", verify("a-secret-key", "1000", sign("a-secret-key", "1000", r.body), r.body), "it is old")
}
