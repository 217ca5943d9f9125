package notices

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"
)

// Headers of a request to a webhook: the id of the notice, when the request was sent (in seconds
// since 1970), and the HMAC-SHA256 of that time, a dot and the body, in hexadecimal digits.
const (
	HeaderID        = "Unwind-Id"
	HeaderTime      = "Unwind-Time"
	HeaderSignature = "Unwind-Signature"
)

func (d Desk) sendWebhook(ctx context.Context, w Webhook, n Notice) error {
	address, err := d.secret("webhook.url", w.URL)
	if err != nil {
		return err
	}
	key, err := d.secret("webhook.key", w.Key)
	if err != nil {
		return err
	}
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	return d.post(ctx, address, body, map[string]string{
		HeaderID: n.ID, HeaderTime: at, HeaderSignature: sign(key, at, body),
	})
}

func sign(key, at string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(at + "."))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}
