package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	maxDocument  = 1 << 20
	maxRedirects = 3
)

// keyFetch gets an issuer's keys.
type keyFetch struct {
	issuer, jwksURL, caFile string
	now                     func() time.Time
}

// keys fetches the key set, after discovery where no URL is configured: so a new jwks_uri is noticed, too.
func (f *keyFetch) keys(ctx context.Context) (*keySet, error) {
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	address := f.jwksURL
	if address == "" {
		if address, err = f.discover(ctx, client); err != nil {
			return nil, err
		}
	}
	text, err := get(ctx, client, address)
	if err != nil {
		return nil, err
	}
	set, err := parseKeySet(text, f.now())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return set, nil
}

// discover asks the issuer where its keys are (OpenID Connect Discovery 1.0, section 4).
func (f *keyFetch) discover(ctx context.Context, client *http.Client) (string, error) {
	address := strings.TrimSuffix(f.issuer, "/") + "/.well-known/openid-configuration"
	text, err := get(ctx, client, address)
	if err != nil {
		return "", err
	}
	var document struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return "", fmt.Errorf("%s: %w", address, err)
	}
	if document.Issuer != f.issuer {
		return "", fmt.Errorf("%s speaks for the issuer %q, not for %q: configure the issuer exactly as it calls itself",
			address, document.Issuer, f.issuer)
	}
	if err := checkURL(document.JWKSURI); err != nil {
		return "", fmt.Errorf("%s: jwks_uri: %w", address, err)
	}
	return document.JWKSURI, nil
}

// client is made anew for each of the rare fetches, so that a renewed CA file counts and no connection stays open.
func (f *keyFetch) client() (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.caFile != "" {
		text, err := os.ReadFile(f.caFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM form", f.caFile)
		}
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true, ForceAttemptHTTP2: true,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return errors.New("too many redirects")
			}
			return checkURL(r.URL.String())
		},
	}, nil
}

func get(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", address, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	if len(text) > maxDocument {
		return nil, fmt.Errorf("%s answers more than %d bytes", address, maxDocument)
	}
	return text, nil
}

// checkURL refuses addresses from which keys cannot be trusted: those without TLS, except on this machine.
func checkURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return errors.New("it is no URL")
	case u.User != nil:
		return errors.New("it must not hold a user name or password")
	case u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !IsLoopback(u.Host)):
		return fmt.Errorf("%q must begin with https:// (http:// is for localhost alone)", address)
	case u.Fragment != "":
		return fmt.Errorf("%q must not have a fragment", address)
	}
	return nil
}
