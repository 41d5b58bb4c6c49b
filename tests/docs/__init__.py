"""Every block of every page is run or checked, every link leads somewhere, and the pages make a site."""
