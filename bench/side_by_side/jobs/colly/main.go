// The job for colly, a crawler in Go: asynchronous, with its queue and its visited URLs in memory.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"sync"

	"github.com/gocolly/colly/v2"
)

const connections = 64

type row struct {
	URL   string `json:"url"`
	Title string `json:"title"`
	Price string `json:"price"`
}

func main() {
	file, err := os.Create("out.jsonl")
	if err != nil {
		log.Fatal(err)
	}
	out := bufio.NewWriterSize(file, 1<<16)
	var writing, asking sync.Mutex
	rows := json.NewEncoder(out)
	rows.SetEscapeHTML(false)

	c := colly.NewCollector(colly.Async(true))
	c.DisableCookies()
	c.WithTransport(&http.Transport{
		MaxIdleConns:        connections,
		MaxIdleConnsPerHost: connections,
		DisableCompression:  true,
	})
	if err := c.Limit(&colly.LimitRule{DomainGlob: "*", Parallelism: connections}); err != nil {
		log.Fatal(err)
	}
	c.OnHTML("html", func(e *colly.HTMLElement) {
		found := row{e.Request.URL.String(), e.ChildText("title"), e.ChildText("span.price")}
		writing.Lock()
		err := rows.Encode(found)
		writing.Unlock()
		if err != nil {
			log.Fatal(err)
		}
		links := e.ChildAttrs("a", "href")
		asking.Lock() // without it, two goroutines could visit the same page
		defer asking.Unlock()
		for _, link := range links {
			_ = e.Request.Visit(link) // the error says that it was visited before
		}
	})
	c.OnError(func(r *colly.Response, err error) { log.Fatal(r.Request.URL, ": ", err) })

	if err := c.Visit(os.Getenv("START_URL")); err != nil {
		log.Fatal(err)
	}
	c.Wait()
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}
