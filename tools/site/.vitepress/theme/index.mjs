import theme from 'vitepress/theme-without-fonts'
import './wide.css'

export default theme
